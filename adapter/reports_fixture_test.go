package adapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest"
)

// The tests named TestReports… try on this library what went wrong in others. docs/reports.md says which report each belongs to, and
// which change of our code turns it red.

// trial is an empty database of one engine, with process A, which can be tampered with, and process B, which cannot.
type trial struct {
	*testing.T
	engine *lastwordtest.Engine
	ctx    context.Context
	dbA    *sql.DB
	dbB    *sql.DB
	a, b   *lastword.Store
	tamper *tamper
	seen   *renewals // by A
}

// eachEngine tries check on every engine.
func eachEngine(t *testing.T, check func(r *trial)) {
	t.Parallel()
	atOnce(t, map[string]func(t *testing.T){"sqlite": onSQLite(check), "postgres": onPostgres(check)})
}

func onSQLite(check func(r *trial)) func(t *testing.T) {
	return func(t *testing.T) { check(newTrial(t, sqliteEngine(t, ""))) }
}

func onPostgres(check func(r *trial)) func(t *testing.T) {
	return func(t *testing.T) { check(newTrial(t, postgresEngine(t, ""))) }
}

// atOnce runs subtests beside each other, however few processors there are: most of them wait for a lease's end.
func atOnce(t *testing.T, subtests map[string]func(t *testing.T)) {
	var running sync.WaitGroup
	for name, subtest := range subtests {
		running.Go(func() { t.Run(name, subtest) })
	}
	running.Wait()
}

func newTrial(t *testing.T, e *lastwordtest.Engine) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a hang is a failure
	t.Cleanup(cancel)
	r := &trial{T: t, engine: e, ctx: ctx, tamper: &tamper{Connector: e.Connector}, seen: &renewals{told: make(chan error, 100)}}
	r.dbA, r.dbB = sql.OpenDB(r.tamper), sql.OpenDB(e.Connector)
	t.Cleanup(func() { _, _ = r.dbA.Close(), r.dbB.Close() })
	r.must(lastword.Migrate(ctx, r.dbB, e.Dialect, nil))
	var errA, errB error
	r.a, errA = lastword.Open(ctx, r.dbA, e.Dialect, &lastword.Options{Holder: "A", Observer: r.seen})
	r.b, errB = lastword.Open(ctx, r.dbB, e.Dialect, &lastword.Options{Holder: "B"})
	r.must(errors.Join(errA, errB))
	return r
}

func (r *trial) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *trial) want(err, target error, what string) {
	r.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		r.Errorf("%s: got %v, want %v", what, err, target)
	}
}

// acquire takes a free lease for a minute.
func (r *trial) acquire(s *lastword.Store, name string) *lastword.Lease {
	r.Helper()
	l, err := s.Acquire(r.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	r.must(err)
	return l
}

// try is an Acquire that does not wait.
func (r *trial) try(s *lastword.Store, name string) error {
	_, err := s.Acquire(r.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	return err
}

// exec runs a statement without parameters, as nobody in particular.
func (r *trial) exec(query string) {
	r.Helper()
	if _, err := r.dbB.ExecContext(r.ctx, query); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
}

// count asks for one number.
func (r *trial) count(query string) (n int64) {
	r.Helper()
	if err := r.dbB.QueryRowContext(r.ctx, query).Scan(&n); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	return n
}

// expire ends a lease now, as if nobody had renewed it.
func (r *trial) expire(name string) {
	r.Helper()
	r.exec(`UPDATE lastword_leases SET leased_until = ` + r.engine.FromNow(-1) + ` WHERE name = '` + name + `'`)
}

// until polls for what the database's clock or another session brings about.
func (r *trial) until(what string, is func() bool) {
	r.Helper()
	for !is() {
		select {
		case <-r.ctx.Done():
			r.Fatalf("not in time: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ended waits for a lease's end, by the database's clock.
func (r *trial) ended(name string) {
	r.Helper()
	r.until("the lease ends", func() bool {
		return r.count(`SELECT count(*) FROM lastword_leases WHERE name = '`+name+`' AND leased_until <= `+r.engine.Now) == 1
	})
}

// waiting counts the sessions that wait for a lock; -1 where none can be asked.
func (r *trial) waiting() int64 {
	r.Helper()
	if r.engine.Waiting == nil {
		return -1
	}
	n, err := r.engine.Waiting(r.ctx, r.dbB)
	r.must(err)
	return n
}

// lockLease keeps the row of a lease locked for everybody else, until release. On SQLite that is the whole database.
func (r *trial) lockLease(name string) (release func()) {
	r.Helper()
	tx, err := r.dbB.BeginTx(r.ctx, nil)
	r.must(err)
	_, err = tx.ExecContext(r.ctx, `UPDATE lastword_leases SET updated_at = updated_at WHERE name = '`+name+`'`)
	r.must(err)
	return func() { _ = tx.Rollback() }
}

// renewals are what A's observer is told of them; the channel is the signal that one was tried.
type renewals struct{ told chan error }

func (s *renewals) Observe(o lastword.Observation) {
	if o.What == lastword.Renewal {
		select {
		case s.told <- o.Err:
		default:
		}
	}
}

// renewed waits for so many renewals that got through, or for the end of the job.
func (s *renewals) renewed(job context.Context, n int) error {
	for n > 0 {
		select {
		case err := <-s.told:
			if err == nil {
				n--
			}
		case <-job.Done():
			return context.Cause(job)
		}
	}
	return nil
}

// tamper is a connector whose statements pass a hook before they are sent. What the hook returns is the statement's error.
type tamper struct {
	driver.Connector
	mu   sync.Mutex
	hook func(ctx context.Context, conn driver.Conn, query string) error
}

func (c *tamper) with(hook func(ctx context.Context, conn driver.Conn, query string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

func (c *tamper) before(ctx context.Context, conn driver.Conn, query string) error {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, conn, query)
}

func (c *tamper) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &tamperedConn{Conn: conn, tamper: c}, nil
}

// tamperedConn passes through what both drivers have.
type tamperedConn struct {
	driver.Conn
	tamper *tamper
}

func (c *tamperedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *tamperedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.tamper.before(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *tamperedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.tamper.before(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *tamperedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// tamperWith runs hook before each statement of A that is this section.
func (r *trial) tamperWith(section string, hook func(ctx context.Context, conn driver.Conn) error) {
	args := lastword.Args{"name": "", "epoch": int64(1), "nonce": "", "owner": "", "ttl_ms": int64(0), "holder": ""}
	text, _ := r.a.Bind(section, args)
	r.tamper.with(func(ctx context.Context, conn driver.Conn, query string) error {
		if query != text {
			return nil
		}
		return hook(ctx, conn)
	})
}

// postgresSession is a process whose sessions on a database have these settings.
func postgresSession(t *testing.T, dsn string, settings map[string]string) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range settings {
		u.RawQuery += "&" + name + "=" + url.PathEscape(value)
	}
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
