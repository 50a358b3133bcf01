package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/sandbox"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// fault is something planted, and the one check that has to see it.
type fault struct {
	name   string
	plant  []string // SQL
	check  string
	status Status
	says   string
}

func connect(t *testing.T, name string) *Subject {
	t.Helper()
	db, dialect, err := database.Connect(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &Subject{DB: db, Dialect: dialect}
}

func migrated(t *testing.T, name string) *Subject {
	t.Helper()
	s := connect(t, name)
	if err := lastword.Migrate(t.Context(), s.DB, s.Dialect, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func plant(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// expect looks for the finding, and for no other failure than those named.
func expect(t *testing.T, s *Subject, f fault) {
	t.Helper()
	findings := Database(t.Context(), s)
	seen := false
	for _, found := range findings {
		if found.Check == f.check {
			seen = true
			if found.Status != f.status || !strings.Contains(found.Says, f.says) {
				t.Errorf("%s: %s: %s, want %s that names %q", found.Check, found.Status, found.Says, f.status, f.says)
			}
		} else if found.Status != OK && f.status != Skip && found.Status != Skip {
			t.Errorf("%s: %s: %s, of which nothing was planted", found.Check, found.Status, found.Says)
		}
		if (found.Status == Warn || found.Status == Fail) && found.Mend == "" {
			t.Errorf("%s has no mend", found.Check)
		}
	}
	if !seen {
		t.Errorf("there is no check %q in %+v", f.check, findings)
	}
	if Failed(findings) != (f.status == Fail) {
		t.Errorf("Failed is %v", Failed(findings))
	}
}

func startPostgres(t *testing.T) *testserver.Postgres {
	t.Helper()
	server, err := testserver.StartPostgres(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

const expiredLease = `INSERT INTO lastword_leases (name, fence, owner, leased_until, ttl_ms, acquired_at, updated_at, holder)
	SELECT 'dead', 1, 'nonce', %[1]s, 1000, %[1]s, %[1]s, 'host:1 nightly'`

func postgresFaults() []fault {
	const dropKey = "ALTER TABLE lastword_leases DROP CONSTRAINT lastword_leases_name_fence"
	return []fault{
		{"nothing", nil, "schema", OK, "this program's version"},
		{"no tables", []string{"DROP TABLE lastword_schema"}, "schema", Fail, "no lastword tables"},
		{"newer tables", []string{"INSERT INTO lastword_schema (version) VALUES (1000)"}, "schema", Fail, "newer"},
		{"key dropped", []string{dropKey}, "unique keys", Fail, "(name, fence)"},
		{"key partial", []string{dropKey, "CREATE UNIQUE INDEX k ON lastword_leases (name, fence) WHERE owner IS NOT NULL"}, "unique keys", Fail, "k is partial"},
		{"key of expressions", []string{dropKey, "CREATE UNIQUE INDEX k ON lastword_leases (name, (fence + 0))"}, "unique keys", Fail, "k has expressions"},
		{"key that only includes", []string{dropKey, "CREATE UNIQUE INDEX k ON lastword_leases (name) INCLUDE (fence)"}, "unique keys", Fail, "(name, fence)"},
		{"key not unique", []string{dropKey, "CREATE INDEX k ON lastword_leases (name, fence)"}, "unique keys", Fail, "(name, fence)"},
		{"key not valid", []string{dropKey, "CREATE UNIQUE INDEX k ON lastword_leases (name, fence)", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'k'::regclass"}, "unique keys", Fail, "k is not valid"},
		{"key the other way round", []string{dropKey, "CREATE UNIQUE INDEX k ON lastword_leases (fence, name) INCLUDE (owner)"}, "unique keys", OK, ""},
		{"names not unique", []string{"ALTER TABLE lastword_leases DROP CONSTRAINT lastword_leases_pkey"}, "unique keys", Fail, "unique key (name)"},
		{"no guard function", []string{"DROP FUNCTION lastword_guard(text)"}, "guard function", Fail, "missing"},
		{"loose collation", []string{"CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
			"ALTER TABLE lastword_leases ALTER COLUMN name TYPE varchar(120) COLLATE loose"}, "collation", Fail, "name has loose"},
		{"linguistic collation", []string{`ALTER TABLE lastword_leases ALTER COLUMN name TYPE varchar(120) COLLATE "und-x-icu"`}, "collation", Warn, "und-x-icu"},
		{"asynchronous commit", []string{"ALTER DATABASE %s SET synchronous_commit = off"}, "durability", Warn, "synchronous_commit is off"},
		{"read-only", []string{"ALTER DATABASE %s SET default_transaction_read_only = on"}, "writable", Fail, "default_transaction_read_only"},
		{"serializable", []string{"ALTER DATABASE %s SET default_transaction_isolation = 'serializable'"}, "isolation", Warn, "40001"},
		{"impatient", []string{"ALTER DATABASE %s SET lock_timeout = '10ms'"}, "timeouts", Warn, "lock_timeout is 10ms"},
		{"patient", []string{"ALTER DATABASE %s SET lock_timeout = '1min'"}, "timeouts", OK, "lock_timeout 1m0s"},
		{"zone", []string{"ALTER DATABASE %s SET TimeZone = 'Europe/Berlin'"}, "time zone", OK, "Europe/Berlin"},
		{"dead lease", []string{fmt.Sprintf(expiredLease, "clock_timestamp() - interval '1 minute'")}, "dead leases", Warn, "dead (host:1 nightly)"},
	}
}

func TestPostgres(t *testing.T) {
	server := startPostgres(t)
	for _, f := range postgresFaults() {
		t.Run(f.name, func(t *testing.T) {
			name, drop, err := server.NewDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(drop)
			s := migrated(t, name)
			u, err := url.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range f.plant {
				if strings.HasPrefix(statement, "ALTER DATABASE") {
					statement = fmt.Sprintf(statement, strings.TrimPrefix(u.Path, "/"))
				}
				plant(t, s.DB, statement)
			}
			expect(t, connect(t, name), f) // on connections that begin with the settings planted
		})
	}
	t.Run("role", func(t *testing.T) { limitedRole(t, server) })
}

func limitedRole(t *testing.T, server *testserver.Postgres) {
	name, drop, err := server.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := migrated(t, name)
	role := fmt.Sprintf("lw_reader_%d", time.Now().UnixNano())
	plant(t, s.DB, "CREATE ROLE "+role+" LOGIN", "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO "+role)
	admin := connect(t, server.URL())
	t.Cleanup(func() {
		drop()
		if _, err := admin.DB.ExecContext(context.Background(), "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	expect(t, connect(t, u.String()), fault{check: "privileges", status: Fail, says: "UPDATE on lastword_leases"})
	plant(t, s.DB, "GRANT UPDATE ON ALL TABLES IN SCHEMA public TO "+role)
	expect(t, connect(t, u.String()), fault{check: "privileges", status: OK, says: role})
	plant(t, s.DB, "ALTER TABLE lastword_leases ENABLE ROW LEVEL SECURITY")
	expect(t, connect(t, u.String()), fault{check: "privileges", status: Warn, says: "lastword_leases"})
}

func TestNoConnection(t *testing.T) {
	findings := Database(t.Context(), connect(t, "postgres://127.0.0.1:1/x"))
	if len(findings) != 1 || findings[0].Status != Fail || !strings.Contains(findings[0].Says, "no connection") {
		t.Errorf("%+v", findings)
	}
}

func TestSQLite(t *testing.T) {
	// A table made by hand, whose name is not compared byte for byte, or without keys.
	table := func(name, key string) []string {
		return []string{"DROP TABLE lastword_leases", "CREATE TABLE lastword_leases (name TEXT " + name + `, fence INTEGER NOT NULL, owner TEXT, leased_until INTEGER, ttl_ms INTEGER NOT NULL,
			acquired_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, holder TEXT NOT NULL` + key + ")"}
	}
	for _, f := range []fault{
		{"nothing", nil, "durability", OK, "synchronous FULL"},
		{"no tables", []string{"DROP TABLE lastword_schema"}, "schema", Fail, "no lastword tables"},
		{"newer tables", []string{"INSERT INTO lastword_schema (version) VALUES (1000)"}, "schema", Fail, "newer"},
		{"key dropped", table("PRIMARY KEY", ""), "unique keys", Warn, "(name, fence)"},
		{"key partial", append(table("PRIMARY KEY", ""), "CREATE UNIQUE INDEX k ON lastword_leases (name, fence) WHERE owner IS NOT NULL"), "unique keys", Warn, "(name, fence)"},
		{"names not unique", table("", ", UNIQUE (name, fence)"), "unique keys", Fail, "unique key (name)"},
		{"names without case", table("COLLATE NOCASE PRIMARY KEY", ", UNIQUE (name, fence)"), "collation", Fail, "NOCASE"},
		{"dead lease", []string{fmt.Sprintf(expiredLease, "unixepoch() * 1000 - 60000")}, "dead leases", Warn, "dead (host:1 nightly)"},
	} {
		t.Run(f.name, func(t *testing.T) {
			name := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
			plant(t, migrated(t, name).DB, f.plant...)
			expect(t, connect(t, name), f)
		})
	}
	// These belong to the connection.
	for _, f := range []fault{
		{"_pragma=synchronous(off)&_pragma=busy_timeout(10000)", nil, "durability", Fail, "synchronous is OFF"},
		{"_pragma=synchronous(normal)&_pragma=busy_timeout(10000)", nil, "durability", Fail, "synchronous is NORMAL"},
		{"_pragma=synchronous(full)&_pragma=journal_mode(delete)&_pragma=busy_timeout(10000)", nil, "durability", Warn, "journal_mode is delete"},
		{"_pragma=synchronous(full)&_pragma=journal_mode(memory)&_pragma=busy_timeout(10000)", nil, "durability", Fail, "journal_mode is memory"},
		{"_pragma=synchronous(full)&_pragma=busy_timeout(0)", nil, "timeouts", Warn, "busy_timeout is 0s"},
		{"_pragma=synchronous(full)&_pragma=query_only(1)&_pragma=busy_timeout(10000)", nil, "writable", Fail, "query_only"},
		{"_pragma=synchronous(full)&mode=ro&_pragma=busy_timeout(10000)", nil, "writable", Fail, "readonly"},
	} {
		t.Run(f.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lastword.db")
			s := migrated(t, "sqlite:"+path)
			db, err := sql.Open("sqlite", "file:"+path+"?"+f.name)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if strings.Contains(f.name, "journal_mode") { // cannot be changed while others have the file open
				_ = s.DB.Close()
			}
			expect(t, &Subject{DB: db, Dialect: s.Dialect}, f)
		})
	}
}

// A look at a busy file waits, and does not call it broken.
func TestSQLiteBusy(t *testing.T) {
	name := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
	s := migrated(t, name)
	tx, err := s.DB.BeginTx(t.Context(), nil) // immediate
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	expect(t, connect(t, name), fault{check: "writable", status: Warn, says: "write lock"})
}

func TestJudgements(t *testing.T) {
	for _, test := range []struct {
		found  Finding
		status Status
		says   string
	}{
		{clockDifference(900*time.Millisecond, 20*time.Millisecond), OK, "900ms ahead"},
		{clockDifference(-1200*time.Millisecond, 20*time.Millisecond), Warn, "1.2s behind"},
		{clockDifference(1200*time.Millisecond, time.Second), OK, "1.2s"},
		{fullness(79, 100), OK, "79 of 100"},
		{fullness(80, 100), Warn, "80 of 100"},
		{pooled(1, 2, 1), OK, ""},
		{pooled(1, 2, 3), Warn, "pooler"},
		{pooled(1, 1, 2), Warn, "pooler"},
		{sandboxMode(sandbox.Report{Mode: sandbox.ModeCgroup}), OK, "cgroup"},
		{sandboxMode(sandbox.Report{Mode: sandbox.ModeUserns, Reasons: []string{"cgroup: read-only"}}), Warn, "read-only"},
		{sandboxMode(sandbox.Report{Mode: sandbox.ModeNone, Reasons: []string{"a", "b"}}), Warn, "a; b"},
		{languages([]judge.LanguageStatus{{Language: judge.Language{Name: "c"}, Installed: "gcc 12"}}), OK, "c (gcc 12)"},
		{languages([]judge.LanguageStatus{{Missing: "python is not installed"}}), Warn, "cannot be judged"},
	} {
		if test.found.Status != test.status || !strings.Contains(test.found.Says, test.says) {
			t.Errorf("%+v, want %s that names %q", test.found, test.status, test.says)
		}
	}
	if found := Machine(t.Context()); len(found) != 2 || Failed(found) {
		t.Errorf("this machine: %+v", found)
	}
}
