package adapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest"
)

// The controls show that the suite can see: each does what the library's rules forbid, and has to find a stale write. One that
// finds none fails, for then a suite that finds none proves nothing.

// control is a database with one lease, held by A, and one row that A's token is to protect.
type control struct {
	*testing.T
	engine *lastwordtest.Engine
	ctx    context.Context
	a, b   *sql.DB
	store  *lastword.Store
	token  lastword.Token
}

func newControl(t *testing.T, e *lastwordtest.Engine) *control {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := &control{T: t, engine: e, ctx: ctx, a: sql.OpenDB(e.Connector), b: sql.OpenDB(e.Connector)}
	t.Cleanup(func() { _, _ = c.a.Close(), c.b.Close() })
	c.must(lastword.Migrate(ctx, c.a, e.Dialect, nil))
	var err error
	c.store, err = lastword.Open(ctx, c.a, e.Dialect, nil)
	c.must(err)
	c.exec(c.b, `CREATE TABLE r (id bigint PRIMARY KEY, v varchar(20) NOT NULL)`)
	c.exec(c.b, `INSERT INTO r VALUES (1, 'before')`)
	lease, err := c.store.Acquire(ctx, "job", lastword.LeaseOptions{TTL: time.Minute})
	c.must(err)
	c.token = lease.Token()
	return c
}

func (c *control) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (c *control) exec(on execer, query string, args ...any) int64 {
	c.Helper()
	result, err := on.ExecContext(c.ctx, query, args...)
	if err != nil {
		c.Fatalf("%s: %v", query, err)
	}
	n, _ := result.RowsAffected()
	return n
}

func (c *control) value() (v string) {
	c.Helper()
	c.must(c.b.QueryRowContext(c.ctx, `SELECT v FROM r WHERE id = 1`).Scan(&v))
	return v
}

// takeOver raises the fence as B. It returns false when that had to wait, and for what ends then.
func (c *control) takeOver() (overtook bool, done chan error) {
	c.Helper()
	done = make(chan error, 1)
	go func() {
		_, err := c.b.ExecContext(c.ctx, `UPDATE lastword_leases SET fence = fence + 1, owner = 'B', leased_until = `+c.engine.FromNow(60_000)+` WHERE name = 'job'`)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			c.must(err)
			return true, done
		case <-time.After(2 * time.Millisecond):
		}
		if c.waiting() > 0 {
			return false, done
		}
	}
}

func (c *control) waiting() (n int64) {
	c.Helper()
	if c.engine.Waiting != nil {
		var err error
		n, err = c.engine.Waiting(c.ctx, c.b)
		c.must(err)
	}
	return n
}

func (c *control) isStale(what string, overtook bool) {
	c.Helper()
	if v := c.value(); !overtook || v != "STALE" {
		c.Errorf("%s: no stale write was seen (B overtook: %v, the row says %s): the control has lost its sight", what, overtook, v)
	}
}

// Check and write in one statement is not enough: a check that does not lock the lease is answered from a snapshot.
func TestControlsUnsafeFormsPostgres(t *testing.T) {
	t.Parallel()
	e := postgresEngine(t, "")
	c := newControl(t, e)
	const valid = `SELECT 1 FROM lastword_leases l WHERE l.name = 'job' AND l.fence = $1 AND l.leased_until > clock_timestamp()`
	forms := map[string]string{
		"UPDATE WHERE EXISTS": `UPDATE r SET v = 'STALE' WHERE id = 1 AND EXISTS (` + valid + `)`,
		"UPDATE FROM":         `UPDATE r SET v = 'STALE' FROM lastword_leases l WHERE r.id = 1 AND l.name = 'job' AND l.fence = $1 AND l.leased_until > clock_timestamp()`,
		"check, then UPDATE":  "",
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for form, query := range forms {
			for _, x := range []string{"X1", "X2"} {
				t.Run(fmt.Sprintf("%s %v %s", form, level, x), func(t *testing.T) {
					c := *c
					c.T = t
					var fence int64
					c.must(c.b.QueryRowContext(c.ctx, `UPDATE lastword_leases SET fence = fence RETURNING fence`).Scan(&fence))
					c.exec(c.b, `UPDATE r SET v = 'before'`)
					c.unsafe(level, x, query, valid, fence)
				})
			}
		}
	}
}

func (c *control) unsafe(level sql.IsolationLevel, x, query, check string, fence int64) {
	c.Helper()
	bystander, err := c.b.BeginTx(c.ctx, nil)
	c.must(err)
	defer bystander.Rollback()
	if x == "X2" {
		c.exec(bystander, `SELECT 1 FROM r WHERE id = 1 FOR UPDATE`)
	}
	tx, err := c.a.BeginTx(c.ctx, &sql.TxOptions{Isolation: level})
	c.must(err)
	defer tx.Rollback()
	args := []any{fence}
	if query == "" {
		var one int
		c.must(tx.QueryRowContext(c.ctx, check, fence).Scan(&one))
		query, args = `UPDATE r SET v = 'STALE' WHERE id = 1`, nil
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(c.ctx, query, args...)
		wrote <- err
	}()
	for x == "X2" && c.waiting() == 0 { // A waits for the bystander
		time.Sleep(time.Millisecond)
	}
	if x == "X1" {
		c.must(<-wrote)
	}
	c.exec(c.b, `UPDATE lastword_leases SET fence = fence + 1, owner = 'B' WHERE name = 'job'`) // B is acknowledged
	if x == "X2" {
		c.must(bystander.Rollback())
		c.must(<-wrote)
	}
	c.must(tx.Commit())
	c.isStale("unsafe form", true)
}

// An error that the caller swallows leaves SQLite in autocommit when it ended the transaction: the next statement on the same
// *sql.Tx stands by itself, unguarded.
func TestControlsSwallowedErrorSQLite(t *testing.T) {
	t.Parallel()
	for _, guarded := range []string{"raw", "Store.Tx"} {
		t.Run(guarded, func(t *testing.T) {
			c := newControl(t, sqliteEngine(t, ""))
			c.exec(c.b, `CREATE TABLE big (x integer)`)
			c.exec(c.b, `WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200000) INSERT INTO big SELECT x FROM n`)
			swallow := func(ctx context.Context, tx *sql.Tx) (next error) {
				ctx2, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				if _, err := tx.ExecContext(ctx2, `UPDATE big SET x = x + (SELECT count(*) FROM big b WHERE b.x < 1000)`); err == nil {
					t.Fatal("the long statement was not interrupted")
				}
				_, next = tx.ExecContext(ctx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
				return next
			}
			if guarded == "Store.Tx" {
				var next error
				err := c.store.Tx(c.ctx, c.token, nil, func(ctx context.Context, tx *sql.Tx) error {
					next = swallow(ctx, tx)
					return nil
				})
				if next == nil || !errors.Is(err, lastword.ErrFailed) || c.value() != "before" {
					t.Errorf("the next statement says %v, Tx %v, the row %s", next, err, c.value())
				}
				return
			}
			tx, err := c.a.BeginTx(c.ctx, nil)
			c.must(err)
			defer tx.Rollback()
			c.must(c.store.Guard(c.ctx, tx, c.token))
			ctx2, cancel := context.WithTimeout(c.ctx, 20*time.Millisecond)
			defer cancel()
			if _, err := tx.ExecContext(ctx2, `UPDATE big SET x = x + (SELECT count(*) FROM big b WHERE b.x < 1000)`); err == nil {
				t.Fatal("the long statement was not interrupted")
			}
			overtook, _ := c.takeOver() // the lock is gone
			c.exec(tx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
			c.isStale("swallowed error", overtook) // before any COMMIT
		})
	}
}

// A guard that only returns no row does not stop a pipeline: what was sent behind it is committed. lastword_guard raises.
func TestControlsPipelinePostgres(t *testing.T) {
	t.Parallel()
	c := newControl(t, postgresEngine(t, ""))
	var dsn string
	c.must(c.b.QueryRowContext(c.ctx, `SELECT current_database()`).Scan(&dsn))
	config, err := pgx.ParseConfig(engines.postgres.URL())
	c.must(err)
	config.Database = dsn
	conn, err := pgx.ConnectConfig(c.ctx, config)
	c.must(err)
	defer conn.Close(context.Background())
	c.takeOver()
	for guard, raises := range map[string]bool{
		`SELECT 1 FROM lastword_leases WHERE $1 = 'lease/' || name || '@' || fence || '.' || owner FOR KEY SHARE`: false,
		`SELECT lastword_guard($1)`: true,
	} {
		c.exec(c.b, `UPDATE r SET v = 'before'`)
		batch := &pgx.Batch{}
		batch.Queue(`BEGIN`)
		batch.Queue(guard, c.token.String())
		batch.Queue(`UPDATE r SET v = 'STALE' WHERE id = 1`)
		batch.Queue(`COMMIT`)
		err := conn.SendBatch(c.ctx, batch).Close()
		if !raises {
			c.must(err)
			c.isStale("pipelined guard that returns no row", true)
			continue
		}
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "LW001" || c.value() != "before" {
			t.Errorf("lastword_guard in a pipeline: %v, the row says %s", err, c.value())
		}
		if refused != nil && strings.Contains(refused.Error(), c.token.Nonce[:7]) {
			t.Errorf("the error shows the nonce: %v", refused)
		}
		_, _ = conn.Exec(c.ctx, `ROLLBACK`)
	}
}

// The guard's KEY SHARE holds off a takeover only because the fence is part of a unique key.
func TestControlsDroppedKeyPostgres(t *testing.T) {
	t.Parallel()
	for _, dropped := range []bool{false, true} {
		c := newControl(t, postgresEngine(t, ""))
		if dropped {
			c.exec(c.b, `ALTER TABLE lastword_leases DROP CONSTRAINT lastword_leases_name_fence`)
		}
		var overtook bool
		var done chan error
		err := c.store.Tx(c.ctx, c.token, nil, func(ctx context.Context, tx *sql.Tx) error {
			overtook, done = c.takeOver()
			c.exec(tx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
			return nil
		})
		c.must(err)
		if dropped {
			c.isStale("guard without its key", overtook)
		} else if overtook {
			t.Error("with its key the guard held nothing off")
		} else {
			c.must(<-done)
		}
	}
}

// leased_until has to be computed after the wait for the lock.
func TestControlsBornExpiredPostgres(t *testing.T) {
	t.Parallel()
	c := newControl(t, postgresEngine(t, ""))
	c.exec(c.b, `CREATE TABLE mark AS SELECT clock_timestamp() AS at`)
	done := make(chan error, 1)
	c.must(c.store.Tx(c.ctx, c.token, nil, func(ctx context.Context, tx *sql.Tx) error {
		c.exec(c.b, `UPDATE lastword_leases SET leased_until = clock_timestamp() - interval '1 second'`)
		go func() {
			_, err := c.b.ExecContext(c.ctx, `UPDATE lastword_leases SET fence = fence + 1, owner = 'B', leased_until = clock_timestamp() + interval '10 seconds' WHERE name = 'job' AND leased_until <= clock_timestamp()`)
			done <- err
		}()
		for c.waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		c.exec(tx, `UPDATE mark SET at = clock_timestamp()`) // B waits still
		return nil
	}))
	c.must(<-done)
	var short bool
	c.must(c.b.QueryRowContext(c.ctx, `SELECT fence = 2 AND leased_until < at + interval '10 seconds' FROM lastword_leases, mark`).Scan(&short))
	if !short {
		t.Error("a takeover in one statement had its whole TTL: the control has lost its sight")
	}
}

// A rollback to a savepoint gives back the locks that were taken after it, the guard's as well.
func TestControlsSavepointPostgres(t *testing.T) {
	t.Parallel()
	c := newControl(t, postgresEngine(t, ""))
	tx, err := c.a.BeginTx(c.ctx, nil)
	c.must(err)
	defer tx.Rollback()
	c.exec(tx, `SAVEPOINT s`)
	c.must(c.store.Guard(c.ctx, tx, c.token))
	c.exec(tx, `ROLLBACK TO s`)
	overtook, _ := c.takeOver()
	c.exec(tx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
	c.must(tx.Commit())
	c.isStale("guard inside of a savepoint", overtook)
}
