package adapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	modernc "modernc.org/sqlite"

	"github.com/lastword-go/lastword/lastwordtest"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/postgres"
	"github.com/lastword-go/lastword/sqlite"
)

// engines are the servers of this test binary. What could not be started is an error that each test of it reports.
var engines struct {
	postgres    *testserver.Postgres
	postgresErr error
	mariadb     *testserver.MariaDB
	mariadbErr  error
}

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // it may have to be installed
	engines.postgres, engines.postgresErr = testserver.StartPostgres(ctx)
	engines.mariadb, engines.mariadbErr = testserver.StartMariaDB(ctx)
	fmt.Printf("engines: sqlite %s, postgres %s, mysql %s\n", version(ctx, "sqlite", "file::memory:", "SELECT sqlite_version()"), postgresVersion(ctx), mysqlVersion())
	cancel()
	code := m.Run()
	if engines.postgres != nil {
		_ = engines.postgres.Close()
	}
	if engines.mariadb != nil {
		_ = engines.mariadb.Close()
	}
	os.Exit(code)
}

func postgresVersion(ctx context.Context) string {
	if engines.postgresErr != nil {
		return "missing: " + engines.postgresErr.Error()
	}
	return version(ctx, "pgx", engines.postgres.URL(), "SHOW server_version")
}

func version(ctx context.Context, driverName, dsn, query string) string {
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	var text string
	if err := db.QueryRowContext(ctx, query).Scan(&text); err != nil {
		return err.Error()
	}
	return text
}

func TestConformanceSQLite(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{"deferred": "", "immediate": "&_txlock=immediate"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lastwordtest.Conformance(t, func(t *testing.T) *lastwordtest.Engine { return sqliteEngine(t, setting) })
		})
	}
}

// upsert as PostgreSQL and SQLite write it.
const upsert = `INSERT INTO lwt_data (id, v) VALUES (?, 'A') ON CONFLICT (id) DO UPDATE SET v = excluded.v`

func sqliteEngine(t *testing.T, setting string) *lastwordtest.Engine {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" + setting
	connector, err := modernc.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return &lastwordtest.Engine{
		Dialect:   sqlite.Dialect(),
		Connector: connector,
		Now:       `CAST(round(unixepoch('subsec') * 1000) AS INTEGER)`,
		Later:     func(expression string, ms int) string { return fmt.Sprintf("(%s + %d)", expression, ms) },
		Upsert:    upsert, UpsertCounts: 1,
		RenewalsWait: true,
	}
}

func TestConformancePostgres(t *testing.T) {
	// How pgx sends statements: prepared and cached by default; "exec" describes nothing and infers types from the Go values,
	// "simple_protocol" writes the values into the text, as behind a pooler that knows no prepared statements.
	t.Parallel()
	for name, mode := range map[string]string{"pgx": "", "pgx exec": "exec", "pgx simple_protocol": "simple_protocol"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lastwordtest.Conformance(t, func(t *testing.T) *lastwordtest.Engine { return postgresEngine(t, mode) })
		})
	}
}

func postgresEngine(t *testing.T, mode string) *lastwordtest.Engine {
	t.Helper()
	dsn := newPostgres(t)
	connect := func(settings ...string) driver.Connector {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		if mode != "" {
			query.Set("default_query_exec_mode", mode)
		}
		for i := 0; i < len(settings); i += 2 {
			query.Set(settings[i], settings[i+1])
		}
		u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus as it stands
		config, err := pgx.ParseConfig(u.String())
		if err != nil {
			t.Fatal(err)
		}
		return stdlib.GetConnector(*config)
	}
	return &lastwordtest.Engine{
		Dialect:   postgres.Dialect(),
		Connector: connect(),
		Isolated: func(level sql.IsolationLevel) driver.Connector {
			return connect("default_transaction_isolation", strings.ToLower(level.String()))
		},
		Now: `clock_timestamp()`,
		Later: func(expression string, ms int) string {
			return fmt.Sprintf("(%s + %d * interval '1 millisecond')", expression, ms)
		},
		Waiting: func(ctx context.Context, db *sql.DB) (n int64, err error) {
			err = db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
			return n, err
		},
		Upsert: upsert, UpsertCounts: 1,
		CreateSchema: `CREATE SCHEMA jobs`,
	}
}

// newPostgres makes an empty database that lives as long as the test.
func newPostgres(t *testing.T) (dsn string) {
	t.Helper()
	if err := engines.postgresErr; err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dsn, drop, err := engines.postgres.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	return dsn
}
