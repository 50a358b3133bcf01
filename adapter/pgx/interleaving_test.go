package pgxlastword_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

// The interleavings of lastwordtest, by pgx: A holds the lease and writes, B takes over, C is a bystander.
//
//	X1  A's write has passed its guard and is not committed. B takes over.
//	X2  C has locked A's target row. A's write waits for it. B takes over. C goes without having changed the row.
//	X3  A's transaction has begun and read. B takes over. A guards and writes. (Tx and Exec are overtaken before they begin.)
//
// Stale is: B's takeover was acknowledged before A's commit was sent, and what A wrote is there in the end.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, way := range []string{"Tx", "Guard", "Exec"} {
			for _, x := range []string{"X1", "X2", "X3"} {
				if way == "Exec" && x == "X1" {
					continue // one statement has no gap
				}
				t.Run(fmt.Sprintf("%s %s %s", x, way, level), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, func(c *pgxpool.Config) {
						c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
					})
					c := &cross{world: w, way: way, level: level, token: w.lease("l", time.Minute).Token(),
						read: make(chan struct{}), guard: make(chan struct{}), wrote: make(chan struct{}), commit: make(chan struct{})}
					c.run(x)
				})
			}
		}
	}
}

type cross struct {
	*world
	way           string
	level         pgx.TxIsoLevel
	token         lastword.Token
	read, wrote   chan struct{} // closed when A has got so far
	guard, commit chan struct{} // closed when A may go on
}

func (c *cross) run(x string) {
	var a, b chan error
	var overtook bool
	switch x {
	case "X1":
		close(c.guard)
		a = c.alice()
		<-c.wrote
		b = async(func() error { return c.force("l") })
		overtook = c.acknowledged(b, 1)
		close(c.commit)
	case "X2":
		close(c.guard)
		close(c.commit)
		bystander, err := c.other.Begin(c.ctx)
		must(c, err)
		_, err = bystander.Exec(c.ctx, `SELECT 1 FROM r WHERE id = 1 FOR UPDATE`)
		must(c, err)
		a = c.alice()
		c.blocked(1)
		b = async(func() error { return c.force("l") })
		overtook = c.acknowledged(b, 2)
		must(c, bystander.Rollback(c.ctx))
	case "X3":
		close(c.commit)
		if c.way == "Guard" {
			a = c.alice()
			<-c.read
		}
		b = async(func() error { return c.force("l") })
		overtook = c.acknowledged(b, 1)
		close(c.guard)
		if c.way != "Guard" {
			a = c.alice()
		}
	}
	errA, errB := <-a, <-b
	changed := c.value() != 0
	switch {
	case overtook && changed:
		c.Errorf("STALE: B took over first, and A's write was committed (A: %v)", errA)
	case changed != (errA == nil):
		c.Errorf("A was told %v, and its write is there: %v", errA, changed)
	case errA != nil && !errors.Is(errA, lastword.ErrFenced) && !errors.Is(errA, lastword.ErrContended):
		c.Errorf("A was told %v", errA)
	case errB != nil:
		c.Errorf("B was told %v", errB)
	case x == "X3" != overtook && c.way != "Exec": // Exec at X2 has not guarded yet when it waits
		c.Errorf("B was acknowledged first: %v", overtook)
	}
}

// acknowledged reports whether B has taken over; else it waits, as one of so many.
func (c *cross) acknowledged(b chan error, waiting int) bool {
	for {
		select {
		case err := <-b:
			b <- err
			return err == nil
		default:
		}
		var n int
		must(c, c.other.QueryRow(c.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
		if n >= waiting {
			return false
		}
	}
}

func (c *cross) alice() chan error {
	var once sync.Once // the function of Tx may run again
	fn := func(ctx context.Context, tx pgx.Tx) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		once.Do(func() { close(c.wrote) })
		<-c.commit
		return nil
	}
	switch c.way {
	case "Tx":
		return async(func() error { return txOn(c.world, c.pool, c.token, pgx.TxOptions{IsoLevel: c.level}, fn) })
	case "Exec":
		return async(func() error {
			_, err := pgxlastword.Exec(c.ctx, c.store, c.pool, c.token, increment)
			return err
		})
	}
	return async(func() error {
		err := pgx.BeginTxFunc(c.ctx, c.pool, pgx.TxOptions{IsoLevel: c.level}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(c.ctx, `SELECT count(*) FROM r`); err != nil {
				return err
			}
			close(c.read)
			<-c.guard
			if err := pgxlastword.Guard(c.ctx, c.store, tx, c.token); err != nil {
				return err
			}
			return fn(c.ctx, tx)
		})
		if err != nil && c.store.Dialect().Classify(err) == lastword.Contended {
			return errors.Join(lastword.ErrContended, err)
		}
		return err
	})
}

// The control: what must be seen to go wrong where the guard is one that only returns no row, and is sent ahead of the write in one batch.
// With the guard that raises, the same batch writes nothing.
func TestControlPipelinedGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	must(t, w.force("l"))
	query, values := w.store.Bind("LeaseGuard", lastword.Args{"name": token.Name, "epoch": token.Epoch, "nonce": token.Nonce})
	send := func(guard string, args ...any) error {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		b.Queue(guard, args...)
		b.Queue(increment)
		b.Queue(`COMMIT`)
		conn, err := w.pool.Acquire(w.ctx)
		must(t, err)
		defer conn.Release()
		return conn.SendBatch(w.ctx, b).Close()
	}
	must(t, send(query, values...))
	if w.value() != 1 {
		t.Error("the pipelined guard that returns no row committed nothing: this control sees nothing")
	}
	w.exec(`UPDATE r SET v = 0`)
	if err := send(`SELECT lastword_guard($1)`, token.String()); w.store.Dialect().Classify(err) != lastword.Fenced {
		t.Errorf("the guard that raises: %v", err)
	}
	w.want(0)
	// And ours, with a function that would not look.
	w.is(w.tx(token, func(ctx context.Context, tx pgx.Tx) error { _ = write(ctx, tx); return nil }), lastword.ErrFenced)
	w.want(0)
}
