package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword-go/lastword"
)

// levels are the isolations that a transaction of the caller may have; DEFAULT where the engine has one only.
func (w *world) levels() []sql.IsolationLevel {
	if w.engine.Isolated == nil {
		return []sql.IsolationLevel{sql.LevelDefault}
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// With a snapshot that is older than what happened to the lease, the guard must not judge by what the snapshot shows.
func guardAfterRead(w *world) {
	renew := func(l *lastword.Lease) error { _, err := w.storeB.Renew(w.ctx, l.Token()); return err }
	release := func(l *lastword.Lease) error { _, err := w.storeB.Release(w.ctx, l.Token()); return err }
	take := func(l *lastword.Lease) error {
		if err := w.end(l); err != nil {
			return err
		}
		_, err := w.storeB.Acquire(w.ctx, l.Token().Name, lastword.LeaseOptions{TTL: time.Minute})
		return err
	}
	force := func(l *lastword.Lease) error { return w.force(l.Token().Name) }
	for _, level := range w.levels() {
		for _, happening := range []struct {
			what     string
			harmless bool
			steps    []func(*lastword.Lease) error
		}{
			{"nothing", true, nil},
			{"a renewal", true, []func(*lastword.Lease) error{renew}},
			{"a takeover", false, []func(*lastword.Lease) error{take}},
			{"a forced takeover", false, []func(*lastword.Lease) error{force}},
			{"a release and a grant", false, []func(*lastword.Lease) error{release, take}},
			{"a renewal and a grant", false, []func(*lastword.Lease) error{renew, take}},
		} {
			w.guardAfter(level, happening.what, happening.harmless, happening.steps)
			w.cell()
		}
	}
}

// end lets a lease end, where it has not been released.
func (w *world) end(l *lastword.Lease) error {
	_, err := w.dbB.ExecContext(w.ctx, w.sql(`UPDATE lastword_leases SET leased_until = `+w.engine.FromNow(-1000)+` WHERE name = ? AND owner IS NOT NULL`), l.Token().Name)
	return err
}

func (w *world) guardAfter(level sql.IsolationLevel, what string, harmless bool, steps []func(*lastword.Lease) error) {
	w.Helper()
	l, id := w.acquire(w.store, w.name()), w.next()*10
	tx, err := w.db.BeginTx(w.ctx, &sql.TxOptions{Isolation: level})
	w.must(err, "begin")
	defer tx.Rollback()
	var n int
	w.must(tx.QueryRowContext(w.ctx, `SELECT count(*) FROM lwt_data`).Scan(&n), "read")
	waiting := w.waiting()
	others := async(func() error {
		for _, step := range steps {
			if err := step(l); err != nil {
				return err
			}
		}
		return nil
	})
	happened := w.settled(others.done, waiting) // else A's transaction has the database to itself already
	err = w.store.Guard(w.ctx, tx, l.Token())
	switch {
	case err == nil && (harmless || !happened):
		w.must(w.insert(w.ctx, tx, id), "insert")
		w.must(tx.Commit(), "commit")
	case err == nil:
		w.Errorf("%v, after %s: the guard passes", level, what)
	case harmless:
		w.want(err, lastword.ErrContended, "%v, after %s", level, what)
	case !errors.Is(err, lastword.ErrFenced) && !errors.Is(err, lastword.ErrContended):
		w.Errorf("%v, after %s: %v", level, what, err)
	}
	if err != nil && tx.Commit() == nil {
		w.Errorf("%v, after %s: the transaction could still be committed", level, what)
	}
	w.must(others.wait(w), what)
	// In a transaction of its own the verdict is clear.
	want := lastword.ErrFenced
	if harmless {
		want = nil
	}
	err = w.store.Tx(w.ctx, l.Token(), &sql.TxOptions{Isolation: level}, func(context.Context, *sql.Tx) error { return nil })
	w.want(err, want, "%v, Tx after %s", level, what)
}

// collide lets A's transaction write, and collide with B where it is told to: with B's update of the row that A has read or, where
// that is written over, with B's lock.
func (w *world) collide(ctx context.Context, tx *sql.Tx, n int, collides bool) error {
	read := `SELECT v FROM lwt_data WHERE id = ?`
	if w.engine.Overwrites {
		read += ` FOR UPDATE NOWAIT`
		b, err := w.dbB.BeginTx(ctx, nil)
		w.must(err, "begin")
		defer b.Rollback()
		if collides {
			_, err = b.ExecContext(ctx, w.sql(`UPDATE lwt_data SET c = c + 1 WHERE id = ?`), n)
			w.must(err, "B's lock")
		}
	}
	var v string
	if err := tx.QueryRowContext(ctx, w.sql(read), n).Scan(&v); err != nil {
		return err
	}
	if collides && !w.engine.Overwrites {
		w.exec(`UPDATE lwt_data SET c = c + 1 WHERE id = ?`, n)
	}
	_, err := tx.ExecContext(ctx, w.sql(`UPDATE lwt_data SET v = 'A' WHERE id = ?`), n)
	return err
}
