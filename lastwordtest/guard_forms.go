package lastwordtest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lastword-go/lastword"
)

func writePromises() []promise {
	return []promise{
		{"every form of write, in Tx and by Exec, in force and stale", writeForms},
		{"Exec refuses what it cannot guard", execRefuses},
		{"Exec in READ COMMITTED and above counts and refuses alike", execAtEveryLevel},
	}
}

// form is one way to write. The row with id n is there before, n+1 is not.
type form struct {
	name  string
	query string // ? is n
	rows  int64  // what the engine counts
	locks bool   // the write has to wait for who holds the row n
}

func (w *world) forms() []form {
	return []form{
		{"UPDATE", `UPDATE lwt_data SET v = 'A' WHERE id = ?`, 1, true},
		{"DELETE", `DELETE FROM lwt_data WHERE id = ?`, 1, true},
		{"upsert", w.engine.Upsert, w.engine.UpsertCounts, true},
		{"INSERT", `INSERT INTO lwt_data (id, v) VALUES (? + 1, 'A')`, 1, false},
		{"INSERT SELECT", `INSERT INTO lwt_data (id, v) SELECT id + 1, 'A' FROM lwt_data WHERE id = ?`, 1, false},
	}
}

// target makes the row that a form works on.
func (w *world) target() (n int) {
	n = w.next() * 10
	w.exec(`INSERT INTO lwt_data (id, v) VALUES (?, 'before')`, n)
	return n
}

func (w *world) targetState(n int) string {
	w.Helper()
	return w.rows(`SELECT id, v FROM lwt_data WHERE id BETWEEN ? AND ? ORDER BY id`, n, n+9)
}

func writeForms(w *world) {
	for _, f := range w.forms() {
		for _, kind := range []lastword.Kind{lastword.KindLease, lastword.KindTask} {
			for _, stale := range []bool{false, true} {
				for _, way := range []string{"Tx", "Exec"} {
					w.writeForm(f, kind, stale, way)
				}
			}
		}
	}
}

func (w *world) writeForm(f form, kind lastword.Kind, stale bool, way string) {
	w.Helper()
	what := fmt.Sprintf("%s by %s with a %s token, stale %v", f.name, way, kind, stale)
	token := w.grant(kind, stale)
	n := w.target()
	before := w.targetState(n)
	write := func(n int) (rows int64, err error) {
		if way == "Exec" {
			return w.store.Exec(w.ctx, token, w.sql(f.query), n)
		}
		err = w.store.Tx(w.ctx, token, nil, func(ctx context.Context, tx *sql.Tx) error {
			result, err := tx.ExecContext(ctx, w.sql(f.query), n)
			if err != nil {
				return err
			}
			rows, err = result.RowsAffected()
			return err
		})
		return rows, err
	}
	rows, err := write(n)
	if stale {
		w.want(err, lastword.ErrFenced, "%s", what)
		if after := w.targetState(n); after != before {
			w.Errorf("%s was committed: %s", what, after)
		}
	} else if err != nil || rows != f.rows || w.targetState(n) == before {
		w.Errorf("%s: %d rows, %v; %s", what, rows, err, w.targetState(n))
	}
	if f.name == "UPDATE" || f.name == "DELETE" || f.name == "INSERT SELECT" { // nothing matches
		rows, err = write(n + 7)
		if stale {
			w.want(err, lastword.ErrFenced, "%s, no row", what)
		} else if rows != 0 || err != nil {
			w.Errorf("%s, no row: %d rows, %v", what, rows, err)
		}
		w.cell()
	}
	w.cell()
}

// grant returns a token of A, which B has overtaken where it is to be stale.
func (w *world) grant(kind lastword.Kind, stale bool) lastword.Token {
	w.Helper()
	if kind == lastword.KindLease {
		name := w.name()
		l := w.acquire(w.store, name)
		if stale {
			w.takeOver(name)
		}
		return l.Token()
	}
	k := w.kind()
	id := w.submit(k, "x")
	a := w.claim(w.store, k)
	if stale {
		_, err := w.storeB.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
		w.must(err, "rerun")
	}
	return a.Token()
}

func execRefuses(w *world) {
	token := w.acquire(w.store, w.name()).Token()
	n := w.target()
	before := w.targetState(n)
	for _, query := range []string{
		"", "SELECT 1", "CREATE TABLE lwt_no (x int)", "DROP TABLE lwt_data", "UPDATE lwt_data SET v = 'x'; DELETE FROM lwt_data", "COMMIT",
		"UPDATE lwt_data SET v = 'x' RETURNING v", "WITH x AS (SELECT 1) DELETE FROM lwt_data", "/* c */ SELECT 1", "UPDATE lwt_data SET v = 'x'; COMMIT",
	} {
		_, err := w.store.Exec(w.ctx, token, query)
		w.want(err, lastword.ErrInvalid, "Exec of %q", query)
		w.cell()
	}
	_, err := w.store.Exec(w.ctx, token, w.sql(`UPDATE lwt_data SET v = NULL WHERE id = ?`), n)
	w.want(err, lastword.ErrFailed, "a constraint")
	if w.targetState(n) != before {
		w.Error("something was written")
	}
}

func execAtEveryLevel(w *world) {
	if w.engine.Isolated == nil {
		w.Skip("one isolation only")
	}
	for _, level := range w.levels() {
		s := w.open(openDB(w.T, w.engine.Isolated(level)), "isolated")
		for _, stale := range []bool{false, true} {
			token, n := w.grant(lastword.KindLease, stale), w.target()
			rows, err := s.Exec(w.ctx, token, w.sql(`UPDATE lwt_data SET v = 'A' WHERE id = ?`), n)
			if stale {
				w.want(err, lastword.ErrFenced, "%v", level)
			} else if rows != 1 || err != nil {
				w.Errorf("%v: %d rows, %v", level, rows, err)
			}
			w.cell()
		}
	}
}
