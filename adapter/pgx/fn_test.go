package pgxlastword_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

// What fn does to its transaction, and what comes of it.
func TestFunctions(t *testing.T) {
	t.Parallel()
	errOurs := errors.New("ours")
	const duplicate = `INSERT INTO r VALUES (1)`
	savepoint := func(ctx context.Context, tx pgx.Tx, result error) error {
		return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			if err := write(ctx, inner); err != nil {
				return err
			}
			_, err := inner.Exec(ctx, duplicate)
			return errors.Join(err, result)
		})
	}
	for name, c := range map[string]struct {
		want, also error // also is matched too
		value      int64
		fn         func(ctx context.Context, tx pgx.Tx) error
	}{
		"own error":       {errOurs, nil, 0, func(context.Context, pgx.Tx) error { return errOurs }},
		"statement error": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, duplicate); return err }},
		"replaced error":  {lastword.ErrFailed, errOurs, 0, func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, duplicate); return errOurs }},
		"swallowed error": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, duplicate)
			_ = write(ctx, tx)
			return nil
		}},
		"swallowed by rows": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, duplicate+` RETURNING id`)
			rows.Close()
			return nil
		}},
		"no rows": {nil, nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, `SELECT id FROM r WHERE id = 9`).Scan(new(int)); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return write(ctx, tx)
		}},
		"savepoint forgives":       {nil, nil, 1, func(ctx context.Context, tx pgx.Tx) error { _ = savepoint(ctx, tx, nil); return write(ctx, tx) }},
		"savepoint error returned": {errOurs, nil, 0, func(ctx context.Context, tx pgx.Tx) error { return savepoint(ctx, tx, errOurs) }},
		"savepoint kept": {nil, nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return write(ctx, inner) })
		}},
		"savepoint by hand": {nil, nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			for _, sql := range []string{`SAVEPOINT a`, duplicate, `ROLLBACK TO SAVEPOINT a`} {
				_, _ = tx.Exec(ctx, sql)
			}
			return write(ctx, tx)
		}},
		"Commit":         {lastword.ErrInvalid, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _ = write(ctx, tx); return tx.Commit(ctx) }},
		"Commit ignored": {lastword.ErrInvalid, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); _ = write(ctx, tx); return nil }},
		"Commit deferred": {lastword.ErrInvalid, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			defer tx.Rollback(ctx)
			return tx.Commit(ctx)
		}},
		"Rollback":            {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _ = write(ctx, tx); return tx.Rollback(ctx) }},
		"Rollback, then more": {pgx.ErrTxClosed, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _ = tx.Rollback(ctx); return write(ctx, tx) }},
		"Rollback after an error": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			defer tx.Rollback(ctx)
			_, err := tx.Exec(ctx, duplicate)
			return err
		}},
		"COMMIT by Conn": {lastword.ErrUnknown, nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			_ = write(ctx, tx)
			_, err := tx.Conn().Exec(ctx, `COMMIT`)
			_ = write(ctx, tx)
			return err
		}},
		"COMMIT by Conn at the end": {lastword.ErrUnknown, nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			_ = write(ctx, tx)
			_, err := tx.Conn().Exec(ctx, `COMMIT`)
			return err
		}},
		"COMMIT by Conn, and an error": {lastword.ErrUnknown, errOurs, 1, func(ctx context.Context, tx pgx.Tx) error {
			_ = write(ctx, tx)
			_, _ = tx.Conn().Exec(ctx, `COMMIT`)
			return errOurs
		}},
		"connection gone": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}},
		"connection gone, swallowed": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error { _ = tx.Conn().Close(ctx); return nil }},
		"rows left open": {lastword.ErrFailed, nil, 0, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT * FROM generate_series(1, 100000)`) //nolint:sqlclosecheck // to be left open is the case
			return err
		}},
		"another guard, refused": {lastword.ErrFenced, nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			token := w.lease("l", time.Minute).Token()
			if c.fn == nil {
				stale := w.lease("other", time.Minute)
				must(t, w.force("other"))
				c.fn = func(ctx context.Context, tx pgx.Tx) error { return pgxlastword.Guard(ctx, w.store, tx, stale.Token()) }
			}
			calls := 0
			err := w.tx(token, func(ctx context.Context, tx pgx.Tx) error { calls++; return c.fn(ctx, tx) })
			w.is(err, c.want)
			if c.also != nil {
				w.is(err, c.also)
			}
			if errors.Is(c.want, errOurs) && errors.Is(err, lastword.ErrFailed) {
				t.Errorf("fn's own error came back as %v", err)
			}
			w.want(c.value)
			if calls != 1 {
				t.Errorf("fn was called %d times", calls)
			}
			w.clean()
		})
	}
}

// Texts that would end the transaction are refused on every path, and nothing is committed.
func TestEndingStatements(t *testing.T) {
	t.Parallel()
	paths := map[string]func(ctx context.Context, tx pgx.Tx, sql string) error{
		"Exec": func(ctx context.Context, tx pgx.Tx, sql string) error { _, err := tx.Exec(ctx, sql); return err },
		"Query": func(ctx context.Context, tx pgx.Tx, sql string) error {
			rows, err := tx.Query(ctx, sql)
			rows.Close()
			return err
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx, sql string) error { return tx.QueryRow(ctx, sql).Scan(nil) },
		"Prepare": func(ctx context.Context, tx pgx.Tx, sql string) error {
			_, err := tx.Prepare(ctx, "p", sql)
			return err
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx, sql string) error {
			b := &pgx.Batch{}
			b.Queue(increment)
			b.Queue(sql)
			return tx.SendBatch(ctx, b).Close()
		},
		"in a savepoint": func(ctx context.Context, tx pgx.Tx, sql string) error {
			return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { _, err := inner.Exec(ctx, sql); return err })
		},
	}
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	for path, send := range paths {
		for _, sql := range []string{`COMMIT`, `commit and chain`, `/* a */ END`, `ROLLBACK`, `SELECT 1; COMMIT; BEGIN`, `SELECT $$it's$$; COMMIT`, `ABORT`, `BEGIN`, `PREPARE TRANSACTION 'x'`} {
			for _, swallow := range []bool{false, true} {
				err := w.tx(token, func(ctx context.Context, tx pgx.Tx) error {
					if err := write(ctx, tx); err != nil {
						return err
					}
					if err := send(ctx, tx, sql); !swallow {
						return err
					}
					return nil
				})
				if !errors.Is(err, lastword.ErrInvalid) {
					t.Errorf("%s by %s: %v", sql, path, err)
				}
			}
		}
	}
	w.want(0)
	w.is(w.tx(token, func(ctx context.Context, tx pgx.Tx) error { // words in strings end nothing
		_, err := tx.Exec(ctx, `UPDATE r SET v = 5 WHERE 'COMMIT; COMMIT' <> $1`, "x")
		return err
	}), nil)
	w.want(5)
}

func TestPanicAndGoexit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	conn, err := pgx.Connect(w.ctx, w.url) // no pool that would put things right
	must(t, err)
	defer conn.Close(w.ctx)
	for name, leave := range map[string]func(){"panic": func() { panic("ours") }, "Goexit": runtime.Goexit} {
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_ = txOn(w, conn, token, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				_ = write(ctx, tx)
				leave()
				return nil
			})
			t.Errorf("%s: Tx returned", name)
		}()
		if got := <-ended; name == "panic" && got != "ours" {
			t.Errorf("the panic came out as %v", got)
		}
		w.want(0)
		if status := conn.PgConn().TxStatus(); conn.IsClosed() || status != 'I' {
			t.Errorf("after a %s the connection is in state %c", name, status)
		}
	}
	w.is(w.force("l"), nil) // does not wait
}

func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	cause := errors.New("enough")
	for name, fn := range map[string]func(ctx context.Context, tx pgx.Tx, cancel func()) error{
		"between statements": func(ctx context.Context, tx pgx.Tx, cancel func()) error { cancel(); return write(ctx, tx) },
		"before commit":      func(_ context.Context, _ pgx.Tx, cancel func()) error { cancel(); return nil },
		"in a statement": func(ctx context.Context, tx pgx.Tx, cancel func()) error {
			blocker, err := w.other.Begin(w.ctx)
			if err != nil {
				return err
			}
			defer blocker.Rollback(w.ctx)
			if _, err := blocker.Exec(w.ctx, `INSERT INTO r VALUES (2)`); err != nil {
				return err
			}
			watched := async(func() error { w.blocked(1); cancel(); return nil })
			_, err = tx.Exec(ctx, `INSERT INTO r VALUES (2)`)
			if err := <-watched; err != nil {
				return err
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(w.ctx)
		err := pgxlastword.Tx(ctx, w.store, w.pool, token, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			if err := write(ctx, tx); err != nil {
				return err
			}
			return fn(ctx, tx, func() { cancel(cause) })
		})
		if err == nil || errors.Is(err, lastword.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		w.want(0)
		w.clean()
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	cancel(cause)
	w.is(pgxlastword.Tx(ctx, w.store, w.pool, token, pgx.TxOptions{}, write), lastword.ErrFailed)
	_, err := pgxlastword.Exec(ctx, w.store, w.pool, token, increment)
	w.is(err, lastword.ErrFailed)
	w.want(0)
}

// A context that is cancelled while COMMIT is under way does not cut off the reply.
func TestCancelInCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	w.exec(`CREATE TABLE latch (id int PRIMARY KEY)`)
	w.exec(`CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO latch VALUES (1); RETURN NULL; END $$`)
	w.exec(`CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON r DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`)
	blocker, err := w.other.Begin(w.ctx)
	must(t, err)
	defer blocker.Rollback(w.ctx)
	_, err = blocker.Exec(w.ctx, `INSERT INTO latch VALUES (1)`)
	must(t, err)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	done := async(func() error { return pgxlastword.Tx(ctx, w.store, w.pool, token, pgx.TxOptions{}, write) })
	w.blocked(1)
	cancel()
	must(t, blocker.Rollback(w.ctx))
	w.is(<-done, nil)
	w.want(1)
}
