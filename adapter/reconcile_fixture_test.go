package adapter

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/reconcile"
)

// reconcileDB is a database of one test's own.
type reconcileDB struct {
	driver, url string
	dialect     lastword.Dialect
}

// open returns one more store with a pool of its own, as another process would have it.
func (d reconcileDB) open(t *testing.T, holder string) *lastword.Store {
	t.Helper()
	db := reconcileMust(sql.Open(d.driver, d.url))
	t.Cleanup(func() { _ = db.Close() })
	return reconcileMust(lastword.Open(t.Context(), db, d.dialect, &lastword.Options{Holder: holder}))
}

func (d reconcileDB) migrate(t *testing.T) reconcileDB {
	t.Helper()
	db := reconcileMust(sql.Open(d.driver, d.url))
	defer db.Close()
	if err := lastword.Migrate(t.Context(), db, d.dialect, nil); err != nil {
		t.Fatal(err)
	}
	d.exec(t, db, `CREATE TABLE published (note varchar(100))`)
	return d
}

func reconcileMust[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (d reconcileDB) exec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (d reconcileDB) wantState(t *testing.T, s *lastword.Store, id int64, want reconcile.State) reconcile.RunInfo {
	t.Helper()
	run, err := reconcile.Get(t.Context(), s, id)
	if err != nil || run.State != want {
		t.Fatalf("run %d: %+v, %v: want state %s", id, run, err, want)
	}
	return run
}

func (d reconcileDB) wantPublished(t *testing.T, s *lastword.Store, want int) {
	t.Helper()
	var n int
	if err := s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM published`).Scan(&n); err != nil || n != want {
		t.Fatalf("%d published, %v: want %d", n, err, want)
	}
}

func reconcilePublish(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO published (note) VALUES ('done')`)
	return err
}

var reconcileOptions = reconcile.Options{Publish: func(ctx context.Context, tx *sql.Tx, _ reconcile.Report) error { return reconcilePublish(ctx, tx) }}

// expire ends every lease now, as if its holder had slept through it.
func (d reconcileDB) expire(t *testing.T, s *lastword.Store) {
	t.Helper()
	d.exec(t, s.DB(), `UPDATE lastword_leases SET leased_until = acquired_at`)
}

func (d reconcileDB) acquire(t *testing.T, s *lastword.Store) *lastword.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), reconcile.LeaseName, lastword.LeaseOptions{TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func reconcileCheck(page func(ctx context.Context, q reconcile.PageQuery) (*reconcile.Page, error)) reconcile.Check {
	return reconcile.Check{Name: "check", Page: page}
}

// reconcileOnePage answers the first question with one orphan, then runs then, then ends.
func reconcileOnePage(then func()) reconcile.Check {
	return reconcileCheck(func(_ context.Context, q reconcile.PageQuery) (*reconcile.Page, error) {
		if q.After != "" {
			then()
			return &reconcile.Page{}, nil
		}
		return &reconcile.Page{Rows: []reconcile.Row{{Key: "a", Orphan: true}}}, nil
	})
}
