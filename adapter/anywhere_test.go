package adapter

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
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

// anywhere runs a client with a token in force and with a stale one: the first writes, the second fails with LW001 and writes nothing.
func anywhere(t *testing.T, client func(dsn, token string) *exec.Cmd) {
	t.Helper()
	dsn := newPostgres(t)
	db, store := openPostgresAt(t, dsn)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE payroll (month text PRIMARY KEY, total bigint); INSERT INTO payroll VALUES ('2026-11', 0)`); err != nil {
		t.Fatal(err)
	}
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
	if out, err := client(dsn, lease.Token().String()).CombinedOutput(); err != nil || total() != 1234 {
		t.Fatalf("with the token in force: %v, total %d\n%s", err, total(), out)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE payroll SET total = 0; UPDATE lastword_leases SET fence = fence + 1, owner = 'another'`); err != nil {
		t.Fatal(err)
	}
	out, err := client(dsn, lease.Token().String()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "LW001") || total() != 0 {
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
