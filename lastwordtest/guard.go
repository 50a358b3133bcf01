package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
)

func guardPromises() []promise {
	return []promise{
		{"holds off a takeover until the commit", guardHoldsOff},
		{"a renewal meanwhile neither fails nor harms", renewalUnderGuard},
		{"an error that is swallowed commits nothing", swallowedError},
		{"a bad statement stays refused through prepared statements", swallowedPrepared},
		{"nothing may end the transaction", endsRefused},
		{"a savepoint may be rolled back", savepoints},
		{"a panic rolls back and goes on", panicRollsBack},
		{"runtime.Goexit rolls back", goexitRollsBack},
		{"a context that ends inside commits nothing", cancelledInside},
		{"an error of the function is returned as it is", functionError},
		{"a guard after an earlier read gives no stale pass", guardAfterRead},
		{"a nil transaction is refused", func(w *world) {
			w.want(w.store.Guard(w.ctx, nil, lastword.Token{Kind: lastword.KindLease, Name: "a", Epoch: 1, Nonce: "x"}), lastword.ErrInvalid, "guard")
		}},
		{"a call of the store inside a transaction waits for nobody", storeInside},
		{"contention is tried again, a few times", contentionRetried},
		{"a lost reply to COMMIT is unknown and not run again", lostCommit},
		{"a commit that was answered with no is a failure", failedCommit},
	}
}

func (w *world) insert(ctx context.Context, tx *sql.Tx, id int) error {
	_, err := tx.ExecContext(ctx, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'written')`), id)
	return err
}

func (w *world) written(from int) int64 {
	w.Helper()
	return w.count(`SELECT count(*) FROM lwt_data WHERE id BETWEEN ? AND ?`, from, from+9)
}

func guardHoldsOff(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	var taker *asynchronous
	err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		waiting := w.waiting()
		taker = async(func() error { return w.force(name) })
		if w.settled(taker.done, waiting) {
			w.Error("the fence was raised under an open guard")
		}
		return w.insert(ctx, tx, id)
	})
	w.must(err, "the guarded transaction")
	w.must(taker.wait(w), "the takeover after the commit")
	_, err = l.Exec(w.ctx, w.sql(`DELETE FROM lwt_data WHERE id = ?`), id)
	w.want(err, lastword.ErrFenced, "a write after the takeover")
	if w.written(id) != 1 {
		w.Error("the guarded write is missing, or the stale delete was committed")
	}
	w.cell()
}

// force raises the fence of a lease as a revocation does, whether or not it has ended.
func (w *world) force(name string) error {
	_, err := w.dbB.ExecContext(w.ctx, w.sql(`UPDATE lastword_leases SET fence = fence + 1, owner = 'FORCED', leased_until = `+w.engine.FromNow(60_000)+` WHERE name = ?`), name)
	return err
}

func renewalUnderGuard(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	var renewal *asynchronous
	err := w.store.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error {
		waiting := w.waiting()
		renewal = async(func() error { _, err := w.storeB.Renew(w.ctx, l.Token()); return err })
		if w.settled(renewal.done, waiting) == w.engine.RenewalsWait {
			w.Errorf("the renewal waits for its own guard: %v", !w.engine.RenewalsWait)
		}
		return nil
	})
	w.must(err, "the guarded transaction")
	w.must(renewal.wait(w), "the renewal")
	w.cell()
}

// failures are statements that fail, each in its own way.
func (w *world) failures(id int) map[string]func(ctx context.Context, tx *sql.Tx) error {
	return map[string]func(context.Context, *sql.Tx) error{
		"syntax":        func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, `NONSENSE`); return err },
		"duplicate key": func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, id) },
		"query": func(ctx context.Context, tx *sql.Tx) error {
			var n int
			return tx.QueryRowContext(ctx, `SELECT nothing FROM lwt_data`).Scan(&n)
		},
		"prepare": func(ctx context.Context, tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(ctx, `SELECT nothing FROM lwt_data`)
			if err == nil {
				defer stmt.Close()
			}
			return err
		},
		"timeout": func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.ExecContext(ctx, `UPDATE lwt_data SET c = c WHERE id = -1`)
			return err
		},
	}
}

func swallowedError(w *world) {
	for what := range w.failures(0) {
		name, id := w.name(), w.next()*10
		l := w.acquire(w.store, name)
		var first, second error
		err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
			w.must(w.insert(ctx, tx, id), "the first insert")
			first = w.failures(id)[what](ctx, tx)
			second = w.insert(ctx, tx, id+1)
			return nil // swallowed
		})
		if what == "timeout" && first != nil && second == nil {
			// database/sql answered for the dead context itself: the driver never saw the statement.
			w.must(err, "a statement that was never sent")
			w.cell()
			continue
		}
		if first == nil || second == nil || err == nil {
			w.Errorf("%s: the bad statement says %v, the next %v, Tx %v", what, first, second, err)
		}
		w.want(err, lastword.ErrFailed, "%s", what)
		if n := w.written(id); n != 0 {
			w.Errorf("%s: %d rows were committed", what, n)
		}
		w.want(w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, id) }), nil, "the next transaction")
		w.cell()
	}
}

func swallowedPrepared(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'prepared')`))
		w.must(err, "prepare")
		defer insert.Close()
		_, err = insert.ExecContext(ctx, id)
		w.must(err, "first")
		if _, err = insert.ExecContext(ctx, id); err == nil {
			w.Error("a duplicate key is no error")
		}
		if _, err = insert.ExecContext(ctx, id+1); err == nil {
			w.Error("a prepared statement runs after an error")
		}
		return nil
	})
	w.want(err, lastword.ErrFailed, "swallowed in a prepared statement")
	err = w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		w.must(w.insert(ctx, tx, id), "insert")
		stmt, err := tx.PrepareContext(ctx, `COMMIT`)
		if err == nil {
			defer stmt.Close()
		}
		w.want(err, lastword.ErrInvalid, "preparing COMMIT")
		return nil
	})
	if err == nil || w.written(id) != 0 {
		w.Errorf("Tx says %v, %d rows were committed", err, w.written(id))
	}
	w.cell()
}

func endsRefused(w *world) {
	for _, query := range []string{
		"COMMIT", "commit", " COMMIT ;", "/* x */ COMMIT", "-- x\nCOMMIT", "END", "ROLLBACK", "BEGIN", "COMMIT TRANSACTION", "ROLLBACK TRANSACTION",
		"UPDATE lwt_data SET c = c; COMMIT", "SELECT 1; ROLLBACK; SELECT 2",
		"SELECT 1 AS [it's]; COMMIT; SELECT 'x'", "SELECT 1 /* /* */ ' */; COMMIT --'", // hidden where the engine quotes in its own way
	} {
		name, id := w.name(), w.next()*10
		l := w.acquire(w.store, name)
		for _, swallow := range []bool{false, true} {
			err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
				w.must(w.insert(ctx, tx, id), "insert")
				_, err := tx.ExecContext(ctx, query)
				w.want(err, lastword.ErrInvalid, "%s", query)
				if next := w.insert(ctx, tx, id+1); next == nil {
					w.Errorf("after %s a statement ran", query)
				}
				if swallow {
					return nil
				}
				return err
			})
			if err == nil || w.written(id) != 0 {
				w.Errorf("%s: Tx says %v, %d rows were committed", query, err, w.written(id))
			}
			w.cell()
		}
	}
}

func savepoints(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		for _, query := range []string{`SAVEPOINT s`, ``, `ROLLBACK TO s`, `RELEASE SAVEPOINT s`} {
			if query == "" {
				w.must(w.insert(ctx, tx, id), "insert")
			} else if _, err := tx.ExecContext(ctx, query); err != nil {
				return err
			}
		}
		waiting := w.waiting()
		taker := async(func() error { return w.force(name) })
		if w.settled(taker.done, waiting) {
			w.Error("a rollback to a savepoint gave the guard's lock away")
		}
		return w.insert(ctx, tx, id+1)
	})
	w.must(err, "Tx")
	if w.written(id) != 1 {
		w.Errorf("%d rows were committed, want the one after the savepoint", w.written(id))
	}
	w.cell()
}

func panicRollsBack(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				w.Errorf("recovered %v, want the function's own panic", p)
			}
		}()
		_ = w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
			w.must(w.insert(ctx, tx, id), "insert")
			panic("boom")
		})
		w.Error("Tx returned")
	}()
	w.want(w.force(name), nil, "the fence can be raised at once")
	if w.written(id) != 0 {
		w.Error("the write was committed")
	}
	w.cell()
}

func goexitRollsBack(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
			if err := w.insert(ctx, tx, id); err != nil {
				w.Errorf("insert: %v", err)
			}
			runtime.Goexit() // what t.FailNow does
			return nil
		})
	}()
	<-done
	w.want(w.force(name), nil, "the fence can be raised at once")
	if w.written(id) != 0 {
		w.Error("the write was committed")
	}
	w.acquire(w.store, w.name()) // the store goes on
	w.cell()
}

func cancelledInside(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	cause := errors.New("the caller has had enough")
	for _, swallow := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(w.ctx)
		err := w.store.Tx(ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
			w.must(w.insert(ctx, tx, id), "insert")
			cancel(cause)
			err := w.insert(ctx, tx, id+1)
			if swallow {
				return nil
			}
			return err
		})
		if err == nil || swallow && !errors.Is(err, cause) || w.written(id) != 0 {
			w.Errorf("swallowed %v: Tx says %v, %d rows were committed", swallow, err, w.written(id))
		}
		if errors.Is(err, lastword.ErrUnknown) {
			w.Errorf("nothing is unknown before COMMIT: %v", err)
		}
		w.cell()
	}
	// A guarded transaction may not outlive a third of its lease.
	short, err := w.store.Acquire(w.ctx, w.name(), lastword.LeaseOptions{TTL: 3 * time.Second})
	w.must(err, "acquire")
	err = short.Tx(w.ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		w.must(w.insert(ctx, tx, id), "insert")
		<-ctx.Done()
		return nil
	})
	w.want(err, lastword.ErrFailed, "a transaction longer than a third of its lease")
	if err == nil || !strings.Contains(err.Error(), "third of its lease") || w.written(id) != 0 {
		w.Errorf("got %v, %d rows were committed", err, w.written(id))
	}
	w.cell()
}

func functionError(w *world) {
	name, id := w.name(), w.next()*10
	l := w.acquire(w.store, name)
	failure := errors.New("its own")
	runs := 0
	err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		runs++
		w.must(w.insert(ctx, tx, id), "insert")
		return failure
	})
	if !errors.Is(err, failure) || errors.Is(err, lastword.ErrFailed) || runs != 1 || w.written(id) != 0 {
		w.Errorf("got %v after %d runs, %d rows were committed", err, runs, w.written(id))
	}
	w.cell()
}

func contentionRetried(w *world) {
	if w.engine.Isolated == nil {
		w.Skip("the guard has the database to itself: nothing collides")
	}
	for _, always := range []bool{false, true} {
		l, n, runs := w.acquire(w.store, w.name()), w.target(), 0
		err := w.store.Tx(w.ctx, l.Token(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(ctx context.Context, tx *sql.Tx) error {
			runs++
			return w.collide(ctx, tx, n, always || runs == 1)
		})
		changed := w.count(`SELECT count(*) FROM lwt_data WHERE id = ? AND v = 'A'`, n) == 1
		switch {
		case always:
			w.want(err, lastword.ErrContended, "a collision at every try")
			if runs < 3 || runs > 20 || changed {
				w.Errorf("%d runs, written: %v", runs, changed)
			}
		case err != nil || runs != 2 || !changed:
			w.Errorf("one collision: %v after %d runs, written: %v", err, runs, changed)
		}
		w.cell()
	}
}

// storeInside forgets to pass tx on. Where there is one writer that call would wait for the transaction that it stands in.
func storeInside(w *world) {
	l := w.acquire(w.store, w.name())
	other := w.acquire(w.store, w.name())
	err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		var want error
		if w.engine.Dialect.SingleWriter {
			want = lastword.ErrInvalid
		}
		kind := w.kind()
		_, exec := w.store.Exec(ctx, other.Token(), `DELETE FROM lwt_data WHERE id = -1`)
		_, renew := w.store.Renew(ctx, other.Token())
		_, submit := w.store.Submit(ctx, nil, lastword.NewTask(kind, 1))
		for what, err := range map[string]error{"exec": exec, "renew": renew, "submit": submit} {
			w.want(err, want, "%s", what)
			w.cell()
		}
		_, submit = w.store.Submit(ctx, tx, lastword.NewTask(kind, 1))
		w.want(submit, nil, "submit with tx")
		return nil
	})
	w.must(err, "Tx")
}
