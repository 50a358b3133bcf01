package adapter

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/mysql"
	"github.com/lastword-go/lastword/postgres"
)

// crashing is a server that a test may kill.
type crashing interface {
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
	Close() error
}

// kill -9 of the database server in the middle of 1,000 guarded writes: what was acknowledged is there, what was refused is not, and after a
// revocation nothing more comes in.
func TestKillOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (crashing, *sql.DB, lastword.Dialect){"postgres": crashingPostgres, "mysql": crashingMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db, dialect := start(t)
			t.Cleanup(func() { _ = db.Close() })
			if err := lastword.Migrate(t.Context(), db, dialect, nil); err != nil {
				t.Fatal(err)
			}
			store, err := lastword.Open(t.Context(), db, dialect, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE ledger (n integer PRIMARY KEY)`); err != nil {
				t.Fatal(err)
			}
			w := &ledgerWriters{t: t, db: db, store: store, insert: `INSERT INTO ledger (n) VALUES (` + dialect.Placeholder(1) + `)`}
			if w.lease, err = store.Acquire(t.Context(), "ledger", lastword.LeaseOptions{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			w.run(server)
		})
	}
}

type ledgerWriters struct {
	t      *testing.T
	db     *sql.DB
	store  *lastword.Store
	insert string
	lease  *lastword.Lease

	next      atomic.Int64
	mu        sync.Mutex
	acked     map[int64]bool
	refused   map[int64]bool
	unknown   int
	midway    chan struct{} // closed at 300 acknowledged writes
	later     chan struct{} // closed at 700
	restarted chan struct{}
}

const (
	ledgerWrites = 1000
	killAfter    = 300
	revokeAfter  = 700
)

func (w *ledgerWriters) run(server crashing) {
	w.acked, w.refused, w.midway, w.later, w.restarted = map[int64]bool{}, map[int64]bool{}, make(chan struct{}), make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for n := w.next.Add(1); n <= ledgerWrites; n = w.next.Add(1) {
				w.write(n)
			}
		})
	}
	<-w.midway
	err := server.Kill(w.t.Context())
	if err != nil && !errors.Is(err, testserver.ErrGiven) { // a server of somebody else's stays up: the rest holds all the same
		w.t.Error(err)
	}
	if err == nil {
		err = server.Restart(w.t.Context())
	}
	if err != nil && !errors.Is(err, testserver.ErrGiven) {
		w.t.Fatal(err)
	}
	close(w.restarted)
	<-w.later
	fence, err := w.store.Revoke(w.t.Context(), "ledger")
	if err != nil || fence != 2 {
		w.t.Errorf("revoke: fence %d, %v", fence, err)
	}
	after := w.count()
	writing.Wait()
	if now := w.count(); now != after {
		w.t.Errorf("%d rows came in after the revocation", now-after)
	}
	w.judge()
}

// write writes until the write is acknowledged, refused or found to be there.
func (w *ledgerWriters) write(n int64) {
	for {
		err := w.lease.Tx(w.t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, w.insert, n)
			return err
		})
		switch {
		case err == nil:
			w.note(n, w.acked)
			return
		case errors.Is(err, lastword.ErrFenced), errors.Is(err, lastword.ErrExpired):
			w.note(n, w.refused)
			return
		}
		// The server is gone; whether this write is there can be asked when it is back.
		select {
		case <-w.restarted:
		case <-w.t.Context().Done():
			return
		}
		if errors.Is(err, lastword.ErrUnknown) {
			w.mu.Lock()
			w.unknown++
			w.mu.Unlock()
		}
		if w.present(n) {
			w.note(n, w.acked)
			return
		}
	}
}

func (w *ledgerWriters) note(n int64, in map[int64]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in[n] = true
	switch len(w.acked) {
	case killAfter:
		if !closed(w.midway) {
			close(w.midway)
		}
	case revokeAfter:
		if !closed(w.later) {
			close(w.later)
		}
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *ledgerWriters) present(n int64) bool { return w.all()[n] }

func (w *ledgerWriters) all() map[int64]bool {
	out := map[int64]bool{}
	var rows *sql.Rows
	var err error
	for range 100 { // dead connections in the pool
		if rows, err = w.db.QueryContext(w.t.Context(), `SELECT n FROM ledger`); err == nil {
			break
		}
	}
	if err != nil {
		w.t.Error(err)
		return out
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			w.t.Error(err)
		}
		out[n] = true
	}
	if err := rows.Err(); err != nil {
		w.t.Error(err)
	}
	return out
}

func (w *ledgerWriters) count() int { return len(w.all()) }

func (w *ledgerWriters) judge() {
	rows := w.all()
	for n := range w.acked {
		if !rows[n] {
			w.t.Errorf("write %d was acknowledged and is lost", n)
		}
	}
	for n := range w.refused {
		if rows[n] {
			w.t.Errorf("write %d was refused and is there", n)
		}
	}
	if len(w.acked) < revokeAfter || len(w.refused) == 0 || len(w.acked)+len(w.refused) != ledgerWrites {
		w.t.Errorf("%d acknowledged, %d refused", len(w.acked), len(w.refused))
	}
	w.t.Logf("%d acknowledged, %d refused, %d of unknown outcome", len(w.acked), len(w.refused), w.unknown)
}

func missing(t *testing.T, err error) {
	t.Helper()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func crashingPostgres(t *testing.T) (crashing, *sql.DB, lastword.Dialect) {
	t.Helper()
	server, err := testserver.StartPostgres(t.Context())
	missing(t, err)
	t.Cleanup(func() { _ = server.Close() })
	db, err := sql.Open("pgx", server.URL())
	missing(t, err)
	return server, db, postgres.Dialect()
}

func crashingMySQL(t *testing.T) (crashing, *sql.DB, lastword.Dialect) {
	t.Helper()
	server, err := testserver.StartMariaDB(t.Context())
	missing(t, err)
	t.Cleanup(func() { _ = server.Close() })
	url, _, err := server.NewDatabase(t.Context())
	missing(t, err)
	dsn, err := testserver.MySQLDSN(url)
	missing(t, err)
	db, err := sql.Open("mysql", dsn)
	missing(t, err)
	return server, db, mysql.Dialect()
}
