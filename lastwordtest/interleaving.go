package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lastword-go/lastword"
)

// The interleavings of A, which holds the lease and writes, B, which takes over, and C, a bystander without a token:
//
//	X1   A's write has passed its check and is not committed. B takes over.
//	X2   C has locked A's target row. A's write waits for it. B takes over. C goes without having changed the row.
//	X2u  The same, and C has changed the row.
//	X3   A's transaction has begun and read. B takes over. A guards and writes.
//	X4   B has taken over and not committed. A guards and writes. B commits.
//
// Stale is: B's takeover was acknowledged before A's commit was sent, and what A wrote is there in the end.
func interleavings() []promise {
	var all []promise
	for _, way := range []string{"Tx", "Guard", "Exec"} {
		for _, x := range []string{"X1", "X2", "X2u", "X3", "X4"} {
			if way == "Exec" && x == "X1" {
				continue // one statement has no gap
			}
			all = append(all, promise{x + " by " + way, func(w *world) { w.interleave(way, x) }})
		}
	}
	return all
}

func (w *world) interleave(way, x string) {
	for _, level := range w.levels() {
		store := w.store
		if way == "Exec" && w.engine.Isolated != nil {
			store = w.open(openDB(w.T, w.engine.Isolated(level)), "isolated")
		}
		for _, f := range w.forms() {
			if (x == "X2" || x == "X2u") && !f.locks {
				continue
			}
			for _, takeover := range []string{"force", "acquire"} {
				// An acquire of a lease whose guard is held answers at once where it can. X4 needs an open transaction.
				if takeover == "acquire" && (f.name != "UPDATE" || x == "X4") {
					continue
				}
				c := &cross{world: w, store: store, way: way, x: x, level: level, form: f, takeover: takeover}
				c.run()
				w.cell()
			}
		}
	}
}

// cross is one cell: one interleaving of one way to write one form.
type cross struct {
	*world
	store    *lastword.Store
	way, x   string
	level    sql.IsolationLevel
	form     form
	takeover string

	name          string
	token         lastword.Token
	n             int
	read, wrote   chan struct{} // closed when A has got so far
	guard, commit chan struct{} // closed when A may go on
}

func (c *cross) String() string {
	return fmt.Sprintf("%s %s %v %s %s", c.x, c.way, c.level, c.form.name, c.takeover)
}

func (c *cross) run() {
	c.Helper()
	c.name = c.world.name()
	c.token = c.acquire(c.world.store, c.name).Token()
	c.n = c.target()
	before := c.targetState(c.n)
	c.read, c.wrote, c.guard, c.commit = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	var a, b *asynchronous
	var overtook bool // B was acknowledged before A's commit was sent
	switch c.x {
	case "X1":
		a, b, overtook = c.gap()
	case "X2", "X2u":
		a, b, overtook = c.locked()
	case "X3":
		a, b, overtook = c.snapshot()
	case "X4":
		a, b, overtook = c.inFlight()
	}
	errA, errB := a.wait(c.world), b.wait(c.world)
	changed := c.targetState(c.n) != before
	switch {
	case overtook && changed:
		c.Errorf("%v: STALE: B took over first, and A's write was committed (A: %v)", c, errA)
	case changed != (errA == nil):
		c.Errorf("%v: A was told %v, and its write is there: %v", c, errA, changed)
	case errA != nil && !errors.Is(errA, lastword.ErrFenced) && !errors.Is(errA, lastword.ErrExpired) && !errors.Is(errA, lastword.ErrContended):
		c.Errorf("%v: A was told %v", c, errA)
	case errB != nil && !errors.Is(errB, lastword.ErrHeld):
		c.Errorf("%v: B was told %v", c, errB)
	case errA != nil && errB != nil && c.takeover == "force": // an acquire may come too early for the one and too late for the other
		c.Errorf("%v: nobody won: %v, %v", c, errA, errB)
	}
}

// alice writes by one of the three ways, and stops where she may be overtaken.
func (c *cross) alice() *asynchronous {
	var read, wrote sync.Once // the function of Tx may run again
	write := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, c.sql(c.form.query), c.n); err != nil {
			return err
		}
		wrote.Do(func() { close(c.wrote) })
		<-c.commit
		return nil
	}
	switch c.way {
	case "Exec":
		return async(func() error {
			_, err := c.store.Exec(c.ctx, c.token, c.sql(c.form.query), c.n)
			return err
		})
	case "Tx":
		return async(func() error {
			return c.store.Tx(c.ctx, c.token, &sql.TxOptions{Isolation: c.level}, write)
		})
	}
	return async(func() error {
		tx, err := c.db.BeginTx(c.ctx, &sql.TxOptions{Isolation: c.level})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if c.x == "X3" {
			var n int
			if err := tx.QueryRowContext(c.ctx, `SELECT count(*) FROM lwt_data`).Scan(&n); err != nil {
				return err
			}
		}
		read.Do(func() { close(c.read) })
		<-c.guard
		if err := c.store.Guard(c.ctx, tx, c.token); err != nil {
			return err
		}
		if err := write(c.ctx, tx); err != nil {
			return contended(c.engine, err)
		}
		return contended(c.engine, tx.Commit())
	})
}

// contended is how the caller of Guard, who has no Tx to judge for him, reads an error of his own statements.
func contended(e *Engine, err error) error {
	if err != nil && e.Dialect.Classify(err) == lastword.Contended {
		return errors.Join(lastword.ErrContended, err)
	}
	return err
}

// bob takes over.
func (c *cross) bob() *asynchronous {
	return async(func() error {
		if c.takeover == "force" {
			return c.force(c.name)
		}
		_, err := c.dbB.ExecContext(c.ctx, c.sql(`UPDATE lastword_leases SET leased_until = `+c.engine.FromNow(-1000)+` WHERE name = ?`), c.name)
		if err != nil {
			return err
		}
		_, err = c.storeB.Acquire(c.ctx, c.name, lastword.LeaseOptions{TTL: time.Minute})
		return err
	})
}

// overtakes reports whether B has been acknowledged, once it has ended or waits.
func (c *cross) overtakes(b *asynchronous, waiting int64) bool {
	c.Helper()
	return c.settled(b.done, waiting) && b.err == nil
}

func (c *cross) reached(a *asynchronous, point chan struct{}) {
	c.Helper()
	select {
	case <-point:
	case <-a.done:
		c.Errorf("%v: A ended too early: %v", c, a.err)
	}
}

func (c *cross) gap() (a, b *asynchronous, overtook bool) {
	close(c.guard)
	a = c.alice()
	c.reached(a, c.wrote)
	waiting := c.waiting()
	b = c.bob()
	overtook = c.overtakes(b, waiting)
	close(c.commit)
	return a, b, overtook
}

func (c *cross) locked() (a, b *asynchronous, overtook bool) {
	tx, err := c.dbB.BeginTx(c.ctx, nil)
	c.must(err, "begin")
	lock := `UPDATE lwt_data SET c = c + 1 WHERE id = ?`
	if c.x == "X2" && !c.engine.Dialect.SingleWriter {
		lock = `SELECT id FROM lwt_data WHERE id = ? FOR UPDATE`
	}
	_, err = tx.ExecContext(c.ctx, c.sql(lock), c.n)
	c.must(err, "C's lock")
	close(c.guard)
	close(c.commit)
	a = c.alice()
	if c.settled(a.done, 0) {
		c.Errorf("%v: A did not wait for C: %v", c, a.err)
	}
	waiting := c.waiting()
	b = c.bob()
	overtook = c.overtakes(b, waiting)
	if c.x == "X2u" {
		c.must(tx.Commit(), "C's commit")
	} else {
		c.must(tx.Rollback(), "C's rollback")
	}
	return a, b, overtook
}

func (c *cross) snapshot() (a, b *asynchronous, overtook bool) {
	close(c.commit)
	if c.way != "Guard" { // these take their snapshot with the guard: overtaken before they begin
		b = c.bob()
		overtook = c.overtakes(b, c.waiting())
		return c.alice(), b, overtook
	}
	a = c.alice()
	c.reached(a, c.read)
	waiting := c.waiting()
	b = c.bob()
	overtook = c.overtakes(b, waiting)
	close(c.guard)
	return a, b, overtook
}

func (c *cross) inFlight() (a, b *asynchronous, overtook bool) {
	close(c.guard)
	close(c.commit)
	tx, err := c.dbB.BeginTx(c.ctx, nil)
	c.must(err, "begin")
	_, err = tx.ExecContext(c.ctx, c.sql(`UPDATE lastword_leases SET fence = fence + 1, owner = 'FORCED' WHERE name = ?`), c.name)
	c.must(err, "B's takeover")
	a = c.alice()
	if c.settled(a.done, 0) {
		c.Errorf("%v: A did not wait for B's verdict: %v", c, a.err)
	}
	c.must(tx.Commit(), "B's commit")
	return a, async(func() error { return nil }), true
}
