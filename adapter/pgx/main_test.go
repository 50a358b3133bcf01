package pgxlastword_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/postgres"
)

var server *testserver.Postgres

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // it may have to be installed
	defer cancel()
	var err error
	if server, err = testserver.StartPostgres(ctx); err != nil {
		fmt.Println("no PostgreSQL:", err)
		if os.Getenv("CI") != "" {
			return 1
		}
		return 0
	}
	defer server.Close()
	return m.Run()
}

// world is an empty database with a Store, a pool of the holder's and one of a bystander's.
type world struct {
	testing.TB
	ctx   context.Context
	url   string
	store *lastword.Store
	pool  *pgxpool.Pool
	other *pgxpool.Pool
}

func newWorld(t testing.TB, configure ...func(*pgxpool.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second) // turns a hang into a failure
	t.Cleanup(cancel)
	url, drop, err := server.NewDatabase(ctx)
	must(t, err)
	t.Cleanup(drop)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, lastword.Migrate(ctx, db, postgres.Dialect(), nil))
	store, err := lastword.Open(ctx, db, postgres.Dialect(), &lastword.Options{Holder: "tester"})
	must(t, err)
	w := &world{TB: t, ctx: ctx, url: url, store: store}
	w.pool, w.other = w.open(configure...), w.open()
	w.exec(`CREATE TABLE r (id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT 0)`)
	w.exec(`INSERT INTO r VALUES (1, 0)`)
	return w
}

func (w *world) open(configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	w.Helper()
	config, err := pgxpool.ParseConfig(w.url)
	must(w, err)
	config.MaxConns = 10
	for _, c := range configure {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(w.ctx, config)
	must(w, err)
	w.Cleanup(pool.Close)
	return pool
}

// sharing is a Store whose own statements run on the given pool.
func (w *world) sharing(pool *pgxpool.Pool) *lastword.Store {
	w.Helper()
	db := stdlib.OpenDBFromPool(pool)
	w.Cleanup(func() { _ = db.Close() })
	store, err := lastword.Open(w.ctx, db, postgres.Dialect(), nil)
	must(w, err)
	return store
}

// migrated is a Store on tables with another prefix.
func (w *world) migrated(prefix string) *lastword.Store {
	w.Helper()
	db := stdlib.OpenDBFromPool(w.other)
	w.Cleanup(func() { _ = db.Close() })
	opts := &lastword.Options{Prefix: prefix}
	must(w, lastword.Migrate(w.ctx, db, postgres.Dialect(), opts))
	store, err := lastword.Open(w.ctx, db, postgres.Dialect(), opts)
	must(w, err)
	return store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exec runs a statement as a bystander.
func (w *world) exec(query string, args ...any) {
	w.Helper()
	_, err := w.other.Exec(w.ctx, query, args...)
	must(w, err)
}

// value is what is committed.
func (w *world) value() (v int64) {
	w.Helper()
	must(w, w.other.QueryRow(w.ctx, `SELECT v FROM r WHERE id = 1`).Scan(&v))
	return v
}

func (w *world) want(v int64) {
	w.Helper()
	if got := w.value(); got != v {
		w.Errorf("the row holds %d, want %d", got, v)
	}
}

func (w *world) lease(name string, ttl time.Duration) *lastword.Lease {
	w.Helper()
	l, err := w.store.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: ttl})
	must(w, err)
	return l
}

func (w *world) attempt() *lastword.Attempt {
	w.Helper()
	_, err := w.store.Submit(w.ctx, nil, lastword.NewTask("k", 1))
	must(w, err)
	attempts, err := w.store.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{"k"}, Lease: time.Minute})
	must(w, err)
	return attempts[0]
}

func (w *world) expire(name string) {
	w.Helper()
	w.exec(`UPDATE lastword_leases SET leased_until = clock_timestamp() - interval '1 second' WHERE name = $1`, name)
}

// force takes over as fast as a taker can.
func (w *world) force(name string) error {
	_, err := w.other.Exec(w.ctx, `UPDATE lastword_leases SET fence = fence + 1, owner = 'FORCED', leased_until = clock_timestamp() + interval '1 hour' WHERE name = $1`, name)
	return err
}

// blocked waits until so many sessions of this database wait for a lock.
func (w *world) blocked(n int) {
	w.Helper()
	for {
		var waiting int
		must(w, w.other.QueryRow(w.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		if waiting >= n {
			return
		}
	}
}

// tx is Tx on the holder's pool.
func (w *world) tx(token lastword.Token, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return txOn(w, w.pool, token, pgx.TxOptions{}, fn)
}

const increment = `UPDATE r SET v = v + 1 WHERE id = 1`

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, increment)
	return err
}

func (w *world) is(err, want error) {
	w.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		w.Errorf("error is %v, want %v", err, want)
	}
}

func async(fn func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// clean checks that the pool has no connection out, and none in a transaction.
func (w *world) clean() {
	w.Helper()
	for n := w.pool.Stat().AcquiredConns(); n != 0; n = w.pool.Stat().AcquiredConns() { // the pool destroys behind our back
		if w.ctx.Err() != nil {
			w.Fatalf("%d connections are not given back", n)
		}
		runtime.Gosched()
	}
	for _, conn := range w.pool.AcquireAllIdle(w.ctx) {
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			w.Errorf("a connection came back in state %c", status)
		}
		conn.Release()
	}
}
