// Package lastwordtest holds the library's promises as a suite that any engine and driver can be put through. The controls
// that show what the suite can see stand beside the engines, in the adapter module.
package lastwordtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
)

// Engine is one engine with one driver, and a fresh and empty database on it.
type Engine struct {
	Dialect lastword.Dialect
	// Connector leads to the database. Each sql.OpenDB of it stands for a process of its own.
	Connector driver.Connector
	// Isolated leads to the same database, by sessions whose transactions have this isolation unless they ask for another.
	// nil: the engine has one isolation only.
	Isolated func(sql.IsolationLevel) driver.Connector
	// Now is an SQL expression: the database's clock, in the form that leased_until has. Later adds milliseconds to such an
	// expression.
	Now   string
	Later func(expression string, ms int) string
	// Waiting counts the sessions of this database that wait for a lock. nil where none can be asked: then who has not answered for
	// a moment is taken to wait.
	Waiting func(ctx context.Context, db *sql.DB) (n int64, err error)
	// Upsert writes v = 'A' into the row of lwt_data with the id ?, which may be there, and counts a row that it changes as UpsertCounts.
	Upsert       string
	UpsertCounts int64
	// RenewalsWait: the guard's lock holds off the holder's own renewals too.
	RenewalsWait bool
	// Overwrites: under REPEATABLE READ a row can be changed that somebody else has changed since the snapshot.
	Overwrites bool
	// CreateSchema makes a schema named jobs; "" where there are none.
	CreateSchema string
}

// Conformance runs every promise against the engine. open is called a few times, and gives each time an empty database that lives until
// the test ends.
func Conformance(t *testing.T, open func(t *testing.T) *Engine) {
	w := newWorld(t, open(t))
	for _, group := range []struct {
		name     string
		promises []promise
	}{
		{"lease", leasePromises()},
		{"with lease", withLeasePromises()},
		{"revoke", revokePromises()},
		{"guard", guardPromises()},
		{"write", writePromises()},
		{"interleaving", interleavings()},
		{"task", taskPromises()},
		{"reap", reapPromises()},
		{"worker", workerPromises()},
		{"event", eventPromises()},
		{"refusal", refusalPromises()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, p := range group.promises {
				t.Run(p.name, func(t *testing.T) { p.check(w.in(t)) })
			}
		})
	}
	t.Run("schema", func(t *testing.T) {
		for _, p := range schemaPromises() {
			t.Run(p.name, func(t *testing.T) { p.check(t, open) })
		}
	})
	t.Logf("conformance %s: %d cells", w.engine.Dialect.Name, *w.cells)
}

// FromNow is an SQL expression: the database's clock in so many milliseconds.
func (e *Engine) FromNow(ms int) string { return e.Later(e.Now, ms) }

type promise struct {
	name  string
	check func(w *world)
}

// world is one database with two processes on it, A and B.
type world struct {
	*testing.T
	engine *Engine
	ctx    context.Context
	db     *sql.DB // of A
	dbB    *sql.DB
	store  *lastword.Store // of A
	storeB *lastword.Store
	steps  lastword.Statements // of the dialect
	serial *int                // of names and ids
	cells  *int                // checked combinations
}

func newWorld(t *testing.T, e *Engine) *world {
	t.Helper()
	w := &world{T: t, engine: e, serial: new(int), cells: new(int)}
	w.ctx = t.Context()
	var err error
	w.steps, err = lastword.ParseStatements(e.Dialect.Queries, "", e.Dialect.Placeholder)
	w.must(err, "statements")
	w.db, w.dbB = openDB(t, e.Connector), openDB(t, e.Connector)
	if err := lastword.Migrate(w.ctx, w.db, e.Dialect, nil); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	w.store, w.storeB = w.open(w.db, "process-a"), w.open(w.dbB, "process-b")
	w.exec(`CREATE TABLE lwt_data (id bigint PRIMARY KEY, v varchar(100) NOT NULL, c bigint NOT NULL DEFAULT 0)`)
	return w
}

// in is the same world for a subtest, with a deadline that turns a hang into a failure.
func (w *world) in(t *testing.T) *world {
	inner := *w
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	inner.T, inner.ctx = t, ctx
	return &inner
}

func openDB(t *testing.T, c driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (w *world) open(db *sql.DB, holder string) *lastword.Store {
	w.Helper()
	s, err := lastword.Open(w.ctx, db, w.engine.Dialect, &lastword.Options{Holder: holder})
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	return s
}

// sql puts the engine's placeholders for ?.
func (w *world) sql(query string) string {
	var out strings.Builder
	for n, part := range strings.Split(query, "?") {
		if n > 0 {
			out.WriteString(w.engine.Dialect.Placeholder(n))
		}
		out.WriteString(part)
	}
	return out.String()
}

// exec runs a statement as nobody in particular, and returns how many rows it changed.
func (w *world) exec(query string, args ...any) int64 {
	w.Helper()
	result, err := w.dbB.ExecContext(w.ctx, w.sql(query), args...)
	if err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	n, _ := result.RowsAffected()
	return n
}

// rows returns what a query finds, as text.
func (w *world) rows(query string, args ...any) string {
	w.Helper()
	return w.rowsOf(w.dbB, w.sql(query), args...)
}

// section runs the statements of a section of the dialect in a transaction, and returns the rows that tell what became of it.
func (w *world) section(tx *sql.Tx, name string, args lastword.Args) (rows string) {
	w.Helper()
	for s := w.steps[name]; ; s = *s.Then {
		found := w.rowsOf(tx, s.Text, s.Bind(args)...)
		isSelect := strings.HasPrefix(s.Text, "SELECT")
		if isSelect || found != "" {
			rows = found
		}
		if s.Then == nil || isSelect && found == "" {
			return rows
		}
	}
}

// committed is section in a transaction of its own.
func (w *world) committed(name string, args lastword.Args) (rows string) {
	w.Helper()
	tx, err := w.dbB.BeginTx(w.ctx, nil)
	w.must(err, "begin")
	defer tx.Rollback()
	rows = w.section(tx, name, args)
	w.must(tx.Commit(), "commit")
	return rows
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (w *world) rowsOf(q queryer, query string, args ...any) string {
	w.Helper()
	rows, err := q.QueryContext(w.ctx, query, args...)
	if err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			w.Fatal(err)
		}
		line := fmt.Sprint(values...)
		for _, v := range values { // some drivers give text as bytes
			if b, ok := v.([]byte); ok {
				line = strings.ReplaceAll(line, fmt.Sprintf("%v", b), string(b))
			}
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return strings.Join(out, "\n")
}

func (w *world) count(query string, args ...any) (n int64) {
	w.Helper()
	if err := w.dbB.QueryRowContext(w.ctx, w.sql(query), args...).Scan(&n); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return n
}

// next returns a number that nobody has used in this database; ten ids from its tenfold are free.
func (w *world) next() int {
	*w.serial++
	return *w.serial
}

func (w *world) cell() { *w.cells++ }

// must stops the test on an error.
func (w *world) must(err error, what string) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// want checks what an error matches; nil wants success.
func (w *world) want(err, target error, what string, args ...any) {
	w.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		w.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), err, target)
	}
}

// waiting counts sessions that wait for a lock.
func (w *world) waiting() int64 {
	w.Helper()
	if w.engine.Waiting == nil {
		return 0
	}
	n, err := w.engine.Waiting(w.ctx, w.dbB)
	w.must(err, "who waits")
	return n
}

// settled reports whether done closes before one session more than so many waits for a lock.
func (w *world) settled(done <-chan struct{}, waiting int64) bool {
	w.Helper()
	if w.engine.Waiting == nil {
		select {
		case <-done:
			return true
		case <-time.After(30 * time.Millisecond):
			return false
		}
	}
	for w.ctx.Err() == nil {
		select {
		case <-done:
			return true
		case <-time.After(time.Millisecond):
		}
		if w.waiting() > waiting {
			return false
		}
	}
	w.Fatal("neither ended nor waiting for a lock")
	return false
}

// eventually polls for what another process or goroutine brings about.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for !is() {
		select {
		case <-w.ctx.Done():
			w.Fatalf("not within a minute: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// async runs fn beside the test.
func async(fn func() error) *asynchronous {
	a := &asynchronous{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.err = fn()
	}()
	return a
}

type asynchronous struct {
	done chan struct{}
	err  error // after done
}

func (a *asynchronous) wait(w *world) error {
	w.Helper()
	select {
	case <-a.done:
	case <-w.ctx.Done():
		w.Fatal("it does not end")
	}
	return a.err
}
