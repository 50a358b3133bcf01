package adapter

import (
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/mysql"
)

// block returns the text of docs/anywhere.md in a language.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/anywhere.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```"+language+"\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("docs/anywhere.md has no text in %s", language)
	}
	return text
}

// anywhere is onDatabase for PostgreSQL.
func anywhere(t *testing.T, client func(dsn, token string) *exec.Cmd) {
	t.Helper()
	dsn := newPostgres(t)
	db, store := openPostgresAt(t, dsn)
	onDatabase(t, db, store, "LW001", func(token string) *exec.Cmd { return client(dsn, token) })
}

// onDatabase runs a client with a token in force and with a stale one: the first writes, the second fails with the guard's code and writes nothing.
func onDatabase(t *testing.T, db *sql.DB, store *lastword.Store, code string, client func(token string) *exec.Cmd) {
	t.Helper()
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec(`CREATE TABLE payroll (month varchar(7) PRIMARY KEY, total bigint)`, `INSERT INTO payroll VALUES ('2026-11', 0)`)
	lease, err := store.Acquire(t.Context(), "payroll", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	total := func() (n int64) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), `SELECT total FROM payroll`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if out, err := client(lease.Token().String()).CombinedOutput(); err != nil || total() != 1234 {
		t.Fatalf("with the token in force: %v, total %d\n%s", err, total(), out)
	}
	exec(`UPDATE payroll SET total = 0`, `UPDATE lastword_leases SET fence = fence + 1, owner = 'another'`)
	out, err := client(lease.Token().String()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), code) || total() != 0 {
		t.Errorf("with a stale token: %v, total %d\n%s", err, total(), out)
	}
	if strings.Contains(string(out), lease.Token().Nonce) {
		t.Errorf("the whole nonce is in the client's error:\n%s", out)
	}
}

func TestGuardFromPsql(t *testing.T) {
	script := `\set VERBOSITY verbose` + "\n" + block(t, "sql")
	anywhere(t, func(dsn, token string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "psql", "-X", "-v", "token="+token, dsn)
		cmd.Stdin = strings.NewReader(script)
		return cmd
	})
}

func TestGuardFromPython(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import psycopg2").CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("psycopg2 is missing (Debian: python3-psycopg2): %s", out)
	}
	script := `import sys, psycopg2
connection, token, total = psycopg2.connect(sys.argv[1]), sys.argv[2], 1234
try:
` + "    " + strings.ReplaceAll(strings.TrimSpace(block(t, "python")), "\n", "\n    ") + `
except psycopg2.DatabaseError as error:
    sys.exit(error.pgcode)
`
	anywhere(t, func(dsn, token string) *exec.Cmd {
		return exec.CommandContext(t.Context(), python, "-c", script, dsn, token)
	})
}

func TestGuardFromMySQL(t *testing.T) {
	server, err := testserver.StartMariaDB(t.Context())
	missing(t, err)
	t.Cleanup(func() { _ = server.Close() })
	name, _, err := server.NewDatabase(t.Context())
	missing(t, err)
	dsn, err := testserver.MySQLDSN(name)
	missing(t, err)
	u, err := url.Parse(name)
	missing(t, err)
	db, err := sql.Open("mysql", dsn)
	missing(t, err)
	t.Cleanup(func() { _ = db.Close() })
	if err := lastword.Migrate(t.Context(), db, mysql.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	store, err := lastword.Open(t.Context(), db, mysql.Dialect(), nil)
	if err != nil {
		t.Fatal(err)
	}
	script := block(t, "mysql")
	onDatabase(t, db, store, "45LW1", func(token string) *exec.Cmd {
		// Without --force the client stops at the first error, and the server rolls back when it leaves.
		cmd := exec.CommandContext(t.Context(), "mysql", "--no-defaults", "--protocol=tcp", "--host="+u.Hostname(), "--port="+u.Port(), "--user=root", strings.TrimPrefix(u.Path, "/"))
		cmd.Stdin = strings.NewReader(strings.Replace(script, "lease/payroll@7.K3V9…", token, 1))
		return cmd
	})
}
