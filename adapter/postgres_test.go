package adapter

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/postgres"
)

// openPostgres opens a fresh database with settings of the session that the library has to cope with.
func openPostgres(t *testing.T, settings map[string]string) (*sql.DB, *lastword.Store) {
	t.Helper()
	u, err := url.Parse(newPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range settings {
		u.RawQuery += "&" + name + "=" + url.PathEscape(value)
	}
	return openPostgresAt(t, u.String())
}

func openPostgresAt(t *testing.T, dsn string) (*sql.DB, *lastword.Store) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := lastword.Migrate(t.Context(), db, postgres.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	s, err := lastword.Open(t.Context(), db, postgres.Dialect(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

func show(t *testing.T, tx *sql.Tx, setting string) (value string) {
	t.Helper()
	if err := tx.QueryRowContext(t.Context(), `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// The library's own transactions say READ COMMITTED, whatever the session's default is.
func TestPostgresIsolationIsStated(t *testing.T) {
	t.Parallel()
	_, s := openPostgres(t, map[string]string{"default_transaction_isolation": "serializable"})
	l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Tx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
		if got := show(t, tx, "transaction_isolation"); got != "read committed" {
			t.Errorf("isolation is %s", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What a crash must not undo is written durably, also where the session is not; a stronger setting is left alone.
func TestPostgresDurability(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		db, s := openPostgres(t, map[string]string{"synchronous_commit": setting})
		for what, change := range map[string]func(tx *sql.Tx, id int64) error{
			"cancel": func(tx *sql.Tx, id int64) error { return s.Cancel(t.Context(), tx, id, 1, "", "") },
			"rerun": func(tx *sql.Tx, id int64) error {
				_, err := s.Rerun(t.Context(), tx, id, 1, lastword.RerunOptions{})
				return err
			},
			"acquire": func(tx *sql.Tx, _ int64) error {
				query, values := s.Bind("LeaseInsert", lastword.Args{"name": "job", "owner": "x", "ttl_ms": 1000, "holder": ""})
				_, err := tx.ExecContext(t.Context(), query, values...)
				return err
			},
			"take over": func(tx *sql.Tx, _ int64) error {
				if _, err := tx.ExecContext(t.Context(), `INSERT INTO lastword_leases VALUES ('free', 1, NULL, NULL, 1000, now(), now(), '')`); err != nil {
					return err
				}
				query, values := s.Bind("LeaseTake", lastword.Args{"name": "free", "owner": "x", "ttl_ms": 1000, "holder": ""})
				_, err := tx.ExecContext(t.Context(), query, values...)
				return err
			},
		} {
			ids, err := s.Submit(t.Context(), nil, lastword.NewTask("k", 1))
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := change(tx, ids[0]); err != nil {
				t.Errorf("%s: %v", what, err)
			} else if got := show(t, tx, "synchronous_commit"); got != want {
				t.Errorf("%s where synchronous_commit is %s: commits with %s, want %s", what, setting, got, want)
			}
			_ = tx.Rollback()
		}
	}
}

// A client that idles with a guard in its hand is ended by the server after a third of the lease, or sooner where the user
// said so.
func TestPostgresIdleIsBounded(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"0": "10s", "2500": "2500ms", "60000": "10s"} {
		db, s := openPostgres(t, map[string]string{"idle_in_transaction_session_timeout": setting})
		l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Tx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
			if got := show(t, tx, "idle_in_transaction_session_timeout"); got != want {
				t.Errorf("idle timeout is %s where the user has %s, want %s", got, setting, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		// The settings end with the transaction: the pool's next user has his own.
		db.SetMaxOpenConns(1)
		var after int
		if err := db.QueryRowContext(t.Context(), `SELECT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::int`).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if after != map[string]int{"0": 0, "2500": 2500, "60000": 60000}[setting] {
			t.Errorf("after the transaction the idle timeout is %d ms, the user has %s", after, setting)
		}
	}
}

// An expired lease can be taken from a holder whose process stands still inside of a guarded transaction.
func TestPostgresIdleHolderIsEnded(t *testing.T) {
	t.Parallel()
	_, s := openPostgres(t, nil)
	l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tookOver := make(chan error, 1)
	// Store.Tx, not Lease.Tx: that would end by its own clock before the server does.
	err = s.Tx(t.Context(), l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
		go func() {
			_, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Minute, Wait: -1})
			tookOver <- err
		}()
		if err := <-tookOver; err != nil { // while fn stands still
			t.Errorf("takeover: %v", err)
		}
		_, err := tx.ExecContext(ctx, `SELECT 1`)
		return err
	})
	if err == nil {
		t.Error("the idle transaction was committed")
	}
}
