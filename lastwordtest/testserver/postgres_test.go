//go:build unix

package testserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

func startPostgres(t *testing.T) *Postgres {
	t.Helper()
	t.Setenv("LASTWORD_TEST_POSTGRES", "")
	pg, err := StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func ask(t *testing.T, pg *Postgres, url, sql string) string {
	t.Helper()
	answer, err := pg.query(t.Context(), url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func TestPostgresNewDatabase(t *testing.T) {
	pg := startPostgres(t)
	one, dropOne, err := pg.NewDatabase(t.Context())
	ok(t, err)
	two, dropTwo, err := pg.NewDatabase(t.Context())
	ok(t, err)
	defer dropTwo()
	ask(t, pg, one, `CREATE TABLE seen (n int)`)
	if got := ask(t, pg, two, `SELECT count(*) FROM pg_tables WHERE tablename = 'seen'`); got != "0" {
		t.Errorf("the second database sees %s tables of the first", got)
	}
	for setting, want := range map[string]string{"fsync": "on", "max_connections": "200", "server_encoding": "UTF8"} {
		if got := ask(t, pg, two, `SHOW `+setting); got != want {
			t.Errorf("%s = %s, want %s", setting, got, want)
		}
	}
	dropOne()
	if got := ask(t, pg, pg.URL(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'lw_%'`); got != "1" {
		t.Errorf("%s databases are left, want 1", got)
	}
}

func TestPostgresKillKeepsWhatWasAcknowledged(t *testing.T) {
	pg := startPostgres(t)
	url, drop, err := pg.NewDatabase(t.Context())
	ok(t, err)
	defer drop()
	ask(t, pg, url, `CREATE TABLE kept (n int)`)
	for n := range 3 {
		ask(t, pg, url, fmt.Sprintf(`INSERT INTO kept VALUES (%d)`, n))
		ok(t, pg.Kill(t.Context()))
		if pids, err := processesIn(pg.folder); err != nil || len(pids) > 0 {
			t.Fatalf("after Kill: processes %v, %v", pids, err)
		}
		if _, err := pg.query(t.Context(), url, `SELECT 1`); err == nil {
			t.Fatal("a killed server answers")
		}
		ok(t, pg.Restart(t.Context()))
		if got, want := ask(t, pg, url, `SELECT count(*) FROM kept`), fmt.Sprint(n+1); got != want {
			t.Fatalf("%s rows after the kill, want %s", got, want)
		}
	}
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Restart(t.Context()))
	ok(t, pg.Restart(t.Context()))
	if got := ask(t, pg, url, `SELECT count(*) FROM kept`); got != "3" {
		t.Fatalf("%s rows after Stop and Restart, want 3", got)
	}
}

func TestPostgresFreeze(t *testing.T) {
	pg := startPostgres(t)
	// An open session, whose process must stand still as well.
	say, answers, end := converse(t, exec.Command(pg.psql, "-X", "-q", "-A", "-t", "-d", pg.URL()))
	say(`SELECT 'before';`)
	if got := <-answers; got != "before" {
		t.Fatalf("the session says %q", got)
	}

	ok(t, pg.Freeze(t.Context()))
	say(`SELECT 'during';`)
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if answer, err := pg.query(soon, pg.URL(), `SELECT 1`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers a new client: %q, %v", answer, err)
	}
	select {
	case answer := <-answers:
		t.Errorf("a frozen server answers an open session: %q", answer)
	default:
	}

	ok(t, pg.Thaw(t.Context()))
	if got := <-answers; got != "during" {
		t.Errorf("after the thaw the session says %q", got)
	}
	if got := ask(t, pg, pg.URL(), `SELECT 1`); got != "1" {
		t.Errorf("after the thaw a new client hears %q", got)
	}
	end()

	ok(t, pg.Freeze(t.Context()))
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Restart(t.Context()))
	ok(t, pg.Freeze(t.Context()))
	ok(t, pg.Kill(t.Context()))
	if err := pg.Freeze(t.Context()); err == nil {
		t.Error("a killed server can be frozen")
	}
}

func TestPostgresGiven(t *testing.T) {
	private := startPostgres(t)
	t.Setenv("LASTWORD_TEST_POSTGRES", private.URL())
	pg, err := StartPostgres(t.Context())
	ok(t, err)
	url, drop, err := pg.NewDatabase(t.Context())
	ok(t, err)
	ask(t, pg, url, `SELECT 1`)
	drop()
	unharmed(t, &pg.server)
	ask(t, private, private.URL(), `SELECT 1`)

	t.Setenv("LASTWORD_TEST_POSTGRES", "host=localhost")
	if _, err := StartPostgres(t.Context()); err == nil {
		t.Error("a given server that is no URL is accepted")
	}
}
