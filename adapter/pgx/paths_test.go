package pgxlastword_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
	"github.com/lastword-go/lastword/postgres"
)

// Everything that a pgx.Tx can do works inside of Tx, and in a savepoint of it.
func TestPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	all := func(ctx context.Context, tx pgx.Tx, first int64) error {
		copied, err := tx.CopyFrom(ctx, pgx.Identifier{"r"}, []string{"id", "v"}, pgx.CopyFromRows([][]any{{first, 7}, {first + 1, 7}}))
		if err != nil || copied != 2 {
			t.Errorf("CopyFrom: %d, %v", copied, err)
		}
		if _, err := tx.Prepare(ctx, "prepared", `SELECT id FROM r WHERE id >= $1 ORDER BY id`); err != nil {
			t.Errorf("Prepare: %v", err)
		}
		rows, _ := tx.Query(ctx, "prepared", first)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) != 2 || ids[1] != first+1 {
			t.Errorf("CollectRows: %v, %v", ids, err)
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE r SET v = 8 WHERE id = $1`, first)
		b.Queue(`SELECT v FROM r WHERE id >= $1 ORDER BY id`, first)
		b.Queue(`SELECT count(*) FROM r`)
		results := tx.SendBatch(ctx, b)
		tag, err := results.Exec()
		if err != nil || tag.RowsAffected() != 1 {
			t.Errorf("batch, Exec: %v, %v", tag, err)
		}
		rows, _ = results.Query()
		if values, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(values) != 2 || values[0] != 8 {
			t.Errorf("batch, Query: %v, %v", values, err)
		}
		var n int64
		if err := errors.Join(results.QueryRow().Scan(&n), results.Close()); err != nil {
			t.Errorf("batch, QueryRow: %d, %v", n, err)
		}
		objects := tx.LargeObjects()
		if _, err := objects.Create(ctx, 0); err != nil {
			t.Errorf("LargeObjects: %v", err)
		}
		return nil
	}
	w.is(w.tx(token, func(ctx context.Context, tx pgx.Tx) error {
		if err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return all(ctx, inner, 200) }); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DEALLOCATE prepared`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM r WHERE id >= 200`)
		return errors.Join(err, tx.Conn().Deallocate(ctx, "prepared"), all(ctx, tx, 100))
	}), nil)
	w.clean()
}

// An error on any path, swallowed, leaves nothing behind, and its cause is told. So is that of a savepoint's own commands.
func TestSwallowedOnEveryPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	const duplicate = `INSERT INTO r VALUES (1)`
	batch := func(ctx context.Context, tx pgx.Tx) pgx.BatchResults {
		b := &pgx.Batch{}
		b.Queue(duplicate + ` RETURNING id`)
		return tx.SendBatch(ctx, b)
	}
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx){
		"Exec":     func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, duplicate) },
		"QueryRow": func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, duplicate+` RETURNING id`).Scan(new(int)) },
		"Query": func(ctx context.Context, tx pgx.Tx) {
			rows, _ := tx.Query(ctx, duplicate+` RETURNING id`)
			_, _ = pgx.CollectRows(rows, pgx.RowTo[int64])
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.CopyFrom(ctx, pgx.Identifier{"r"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
		},
		"Prepare": func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Prepare(ctx, "p", `INSERT INTO r SELECT 1 FROM r GROUP BY v HAVING id = 1`)
		},
		"batch, Exec": func(ctx context.Context, tx pgx.Tx) { r := batch(ctx, tx); _, _ = r.Exec(); _ = r.Close() },
		"batch, QueryRow": func(ctx context.Context, tx pgx.Tx) {
			r := batch(ctx, tx)
			_ = r.QueryRow().Scan(new(int))
			_ = r.Close()
		},
		"batch, Query": func(ctx context.Context, tx pgx.Tx) {
			r := batch(ctx, tx)
			rows, _ := r.Query()
			rows.Close()
			_ = r.Close()
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) {
			inner, _ := tx.Begin(ctx)
			_, _ = inner.Exec(ctx, duplicate)
			_ = inner.Commit(ctx) // not rolled back: not forgiven
			_, _ = tx.Begin(ctx)
		},
	} {
		err := w.tx(token, func(ctx context.Context, tx pgx.Tx) error {
			if err := write(ctx, tx); err != nil {
				return err
			}
			fail(ctx, tx)
			_ = write(ctx, tx) // does not hide the cause
			return nil
		})
		var answer *pgconn.PgError
		if !errors.Is(err, lastword.ErrFailed) || !errors.As(err, &answer) || answer.Code != "23505" && answer.Code != "42803" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The server's word is heard also where nobody watches.
	err := w.tx(token, func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Conn().Exec(ctx, duplicate)
		return nil
	})
	w.is(err, lastword.ErrFailed)
	w.want(0)
	w.clean()
}

// A guard that sees nothing because of an old snapshot is no refusal.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = tx.Exec(w.ctx, `SELECT 1 FROM r`)
	must(t, err)
	token := w.lease("l", time.Minute).Token()
	w.is(pgxlastword.Guard(w.ctx, w.store, tx, token), lastword.ErrContended)
	if counts := w.store.RefusalCounts(); counts.Refused != 0 {
		t.Errorf("%d refusals are counted", counts.Refused)
	}
	w.is(w.tx(token, write), nil)
}

// Where the reason cannot be read, nothing is written all the same.
func TestRefusalWithoutReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.lease("l", time.Minute)
	must(t, w.force("l"))
	db, err := sql.Open("pgx", w.url)
	must(t, err)
	w.store, err = lastword.Open(w.ctx, db, postgres.Dialect(), nil)
	must(t, err)
	must(t, db.Close())
	for way, run := range ways {
		if err := run(w, l.Token()); !errors.Is(err, lastword.ErrFailed) || !strings.Contains(err.Error(), "not in force") {
			t.Errorf("%s: %v", way, err)
		}
	}
	w.want(0)
}
