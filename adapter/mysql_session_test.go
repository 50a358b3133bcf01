package adapter

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest"
	"github.com/lastword-go/lastword/mysql"
)

func onlyMariaDB(t *testing.T) {
	t.Helper()
	newMySQL(t)
	if !strings.HasPrefix(mysqlVersion(), "MariaDB") {
		t.Skip("of MariaDB only: " + mysqlVersion())
	}
}

// A session that is odd in everything that a session may be odd in. SIMULTANEOUS_ASSIGNMENT makes SET assign all at once.
func TestConformanceMySQLOddSession(t *testing.T) {
	t.Parallel()
	onlyMariaDB(t)
	const odd = "sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,SIMULTANEOUS_ASSIGNMENT,TRADITIONAL%27&innodb_snapshot_isolation=1&tx_isolation=%27SERIALIZABLE%27&clientFoundRows=true"
	lastwordtest.Conformance(t, func(t *testing.T) *lastwordtest.Engine { return mysqlEngine(t, odd) })
}

// Without autocommit nothing that the library writes in one statement would be committed.
func TestMySQLAutocommitIsWanted(t *testing.T) {
	t.Parallel()
	dsn := newMySQL(t)
	off := sql.OpenDB(mysqlConnector(t, dsn, "autocommit=0"))
	defer off.Close()
	err := lastword.Migrate(t.Context(), off, mysql.Dialect(), nil)
	if !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("migrate: %v", err)
	}
	on := sql.OpenDB(mysqlConnector(t, dsn))
	defer on.Close()
	if err := lastword.Migrate(t.Context(), on, mysql.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err = lastword.Open(t.Context(), off, mysql.Dialect(), nil); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("open: %v", err)
	}
}

type mysqlSession struct{ id, autocommit, idle int }

func mysqlSessionOf(t *testing.T, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (s mysqlSession) {
	t.Helper()
	query := `SELECT CONNECTION_ID(), @@SESSION.autocommit, 0 /*M!100600 + @@SESSION.idle_transaction_timeout */`
	if err := q.QueryRowContext(t.Context(), query).Scan(&s.id, &s.autocommit, &s.idle); err != nil {
		t.Fatal(err)
	}
	return s
}

// The pool's next user has the session as he would have had it.
func TestMySQLSessionIsGivenBack(t *testing.T) {
	t.Parallel()
	onlyMariaDB(t)
	failure := errors.New("its own")
	for setting, want := range map[string]int{"0": 10, "3": 3, "60": 10} {
		db, s := openMySQL(t, "idle_transaction_timeout="+setting)
		db.SetMaxOpenConns(1)
		l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		before := mysqlSessionOf(t, db)
		for what, end := range map[string]func() error{"commit": func() error { return nil }, "error": func() error { return failure }, "panic": func() error { panic(failure) }} {
			func() {
				defer func() { _ = recover() }()
				err := l.Tx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
					if inside := mysqlSessionOf(t, tx); inside != (mysqlSession{before.id, 0, want}) {
						t.Errorf("inside: %+v, want the idle timeout %d", inside, want)
					}
					return end()
				})
				if (err == nil) != (what == "commit") {
					t.Errorf("%s: %v", what, err)
				}
			}()
			if after := mysqlSessionOf(t, db); after != before {
				t.Errorf("after a %s: %+v, before %+v", what, after, before)
			}
		}
		// Without a deadline nothing is bounded.
		if err := s.InTx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
			if inside := mysqlSessionOf(t, tx); inside.idle != before.idle || inside.autocommit != 0 {
				t.Errorf("without a deadline: %+v", inside)
			}
			_, err := tx.ExecContext(t.Context(), `SET @LASTWORD_AUTOCOMMIT = 7`) // so that it cannot be put back
			return err
		}); err != nil {
			t.Error(err)
		}
		if after := mysqlSessionOf(t, db); after.id == before.id || after.autocommit != 1 {
			t.Errorf("a session that could not be put back was kept: %+v, before %+v", after, before)
		}
	}
}

// An expired lease can be taken from a holder whose process stands still inside of a guarded transaction.
func TestMySQLIdleHolderIsEnded(t *testing.T) {
	t.Parallel()
	onlyMariaDB(t)
	_, s := openMySQL(t)
	l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tookOver := make(chan error, 1)
	err = l.Tx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
		go func() {
			_, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Minute, Wait: -1})
			tookOver <- err
		}()
		if err := <-tookOver; err != nil { // while fn stands still, and does not look at its context
			t.Errorf("takeover: %v", err)
		}
		_, err := tx.ExecContext(t.Context(), `SELECT 1`)
		return err
	})
	if err == nil {
		t.Error("the idle transaction was committed")
	}
}
