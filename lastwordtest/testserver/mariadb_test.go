//go:build unix

package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func startMariaDB(t *testing.T) *MariaDB {
	t.Helper()
	t.Setenv("LASTWORD_TEST_MYSQL", "")
	m, err := StartMariaDB(t.Context())
	ok(t, err)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func askMariaDB(t *testing.T, m *MariaDB, url, sql string) string {
	t.Helper()
	answer, err := m.query(t.Context(), url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func TestMariaDBNewDatabase(t *testing.T) {
	m := startMariaDB(t)
	t.Log(m.Version(), m.DSN())
	one, dropOne, err := m.NewDatabase(t.Context())
	ok(t, err)
	two, dropTwo, err := m.NewDatabase(t.Context())
	ok(t, err)
	defer dropTwo()
	askMariaDB(t, m, one, `CREATE TABLE seen (n int)`)
	if got := askMariaDB(t, m, two, `SHOW TABLES`); got != "" {
		t.Errorf("the second database sees the tables %s of the first", got)
	}
	for setting, want := range map[string]string{
		"innodb_flush_log_at_trx_commit": "1", "max_connections": "300", "bind_address": "127.0.0.1",
		"character_set_server": "utf8mb4", "character_set_database": "utf8mb4", "character_set_client": "utf8mb4",
	} {
		if got := askMariaDB(t, m, two, `SELECT @@`+setting); got != want {
			t.Errorf("%s = %s, want %s", setting, got, want)
		}
	}
	if said := askMariaDB(t, m, two, `SELECT VERSION()`); mariadbVersion(said) != m.Version() {
		t.Errorf("the server says %q, and Version %q", said, m.Version())
	}
	if got := askMariaDB(t, m, two, `SELECT 'süß 🦊'`); got != "süß 🦊" {
		t.Errorf("text comes back as %q", got)
	}

	// An open transaction does not keep drop waiting.
	u, err := url.Parse(one)
	ok(t, err)
	session := exec.Command(m.client, clientArgs(u)...)
	say, answers, _ := converse(t, session)
	say(`BEGIN; INSERT INTO seen VALUES (1); SELECT 'busy';`)
	if got := <-answers; got != "busy" {
		t.Fatalf("the session says %q", got)
	}
	began := time.Now()
	dropOne()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("drop took %v", took)
	}
	if got := askMariaDB(t, m, m.URL(), `SHOW DATABASES LIKE 'lw\_%'`); strings.Contains(got, "\n") || !strings.HasSuffix(two, got) {
		t.Errorf("the databases %q are left", got)
	}
	_ = session.Process.Kill()
	_ = session.Wait() // "signal: killed"
}

func TestMariaDBKillKeepsWhatWasAcknowledged(t *testing.T) {
	m := startMariaDB(t)
	url, drop, err := m.NewDatabase(t.Context())
	ok(t, err)
	defer drop()
	askMariaDB(t, m, url, `CREATE TABLE kept (n int)`)
	for n := range 3 {
		askMariaDB(t, m, url, fmt.Sprintf(`INSERT INTO kept VALUES (%d)`, n))
		ok(t, m.Kill(t.Context()))
		if pids, err := processesIn(m.folder); err != nil || len(pids) > 0 {
			t.Fatalf("after Kill: processes %v, %v", pids, err)
		}
		if _, err := m.query(t.Context(), url, `SELECT 1`); err == nil {
			t.Fatal("a killed server answers")
		}
		ok(t, m.Restart(t.Context()))
		if got, want := askMariaDB(t, m, url, `SELECT count(*) FROM kept`), fmt.Sprint(n+1); got != want {
			t.Fatalf("%s rows after the kill, want %s", got, want)
		}
	}
	ok(t, m.Stop(t.Context()))
	ok(t, m.Stop(t.Context()))
	ok(t, m.Restart(t.Context()))
	ok(t, m.Restart(t.Context()))
	if got := askMariaDB(t, m, url, `SELECT count(*) FROM kept`); got != "3" {
		t.Fatalf("%s rows after Stop and Restart, want 3", got)
	}
}

func TestMariaDBFreeze(t *testing.T) {
	m := startMariaDB(t)
	u, err := url.Parse(m.URL())
	ok(t, err)
	say, answers, end := converse(t, exec.Command(m.client, clientArgs(u)...))
	say(`SELECT 'before';`)
	if got := <-answers; got != "before" {
		t.Fatalf("the session says %q", got)
	}

	ok(t, m.Freeze(t.Context()))
	say(`SELECT 'during';`)
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if answer, err := m.query(soon, m.URL(), `SELECT 1`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers a new client: %q, %v", answer, err)
	}
	select {
	case answer := <-answers:
		t.Errorf("a frozen server answers an open session: %q", answer)
	default:
	}

	ok(t, m.Thaw(t.Context()))
	if got := <-answers; got != "during" {
		t.Errorf("after the thaw the session says %q", got)
	}
	if got := askMariaDB(t, m, m.URL(), `SELECT 1`); got != "1" {
		t.Errorf("after the thaw a new client hears %q", got)
	}
	end()

	ok(t, m.Freeze(t.Context()))
	ok(t, m.Stop(t.Context()))
	ok(t, m.Restart(t.Context()))
	ok(t, m.Freeze(t.Context()))
	ok(t, m.Kill(t.Context()))
	if err := m.Freeze(t.Context()); err == nil {
		t.Error("a killed server can be frozen")
	}
}

func TestMariaDBGiven(t *testing.T) {
	private := startMariaDB(t)
	askMariaDB(t, private, private.URL(), `CREATE USER u@127.0.0.1 IDENTIFIED BY 'a:b@c/d'; GRANT ALL ON *.* TO u@127.0.0.1`)
	given := &url.URL{Scheme: "mysql", User: url.UserPassword("u", "a:b@c/d"), Host: fmt.Sprintf("127.0.0.1:%d", private.port)}
	t.Setenv("LASTWORD_TEST_MYSQL", given.String())
	m, err := StartMariaDB(t.Context())
	ok(t, err)
	if m.Version() != private.Version() {
		t.Errorf("version %q, want %q", m.Version(), private.Version())
	}
	if want := fmt.Sprintf("u:a:b@c/d@tcp(127.0.0.1:%d)/", private.port); m.DSN() != want {
		t.Errorf("DSN = %s, want %s", m.DSN(), want)
	}
	url, drop, err := m.NewDatabase(t.Context())
	ok(t, err)
	if got := askMariaDB(t, m, url, `SELECT CURRENT_USER()`); got != "u@127.0.0.1" {
		t.Errorf("the user is %q", got)
	}
	drop()
	unharmed(t, &m.server)
	if got := askMariaDB(t, private, private.URL(), `SHOW DATABASES LIKE 'lw\_%'`); got != "" {
		t.Errorf("the databases %q are left", got)
	}

	for _, wrong := range []string{"root@tcp(127.0.0.1:3306)/", "mysql://root@127.0.0.1:1/"} {
		t.Setenv("LASTWORD_TEST_MYSQL", wrong)
		if _, err := StartMariaDB(t.Context()); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestMySQLDSN(t *testing.T) {
	for dbURL, want := range map[string]string{
		"mysql://root@127.0.0.1:15432/lw_x":             "root@tcp(127.0.0.1:15432)/lw_x",
		"mysql://host":                                  "tcp(host:3306)/",
		"mysql://u:p%40w@[::1]:7/a%2Fb?parseTime=true":  "u:p@w@tcp([::1]:7)/a%2Fb?parseTime=true",
		"mysql://u:@h/d?time_zone=%27%2B00%3A00%27&x=1": "u:@tcp(h:3306)/d?time_zone=%27%2B00%3A00%27&x=1",
	} {
		if got, err := MySQLDSN(dbURL); err != nil || got != want {
			t.Errorf("%s becomes %s, %v, want %s", dbURL, got, err, want)
		}
	}
	if _, err := MySQLDSN("mysql://%zz"); err == nil {
		t.Error("what is no URL is accepted")
	}
}

func TestMariaDBVersion(t *testing.T) {
	for said, want := range map[string]string{
		"mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)": "MariaDB 10.11.19",
		"11.4.2-MariaDB-log": "MariaDB 11.4.2",
		"/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)": "MySQL 8.0.36",
		"8.0.36-0ubuntu0.22.04.1": "MySQL 8.0.36",
		"":                        "MySQL of unknown version",
	} {
		if got := mariadbVersion(said); got != want {
			t.Errorf("%q is read as %s, want %s", said, got, want)
		}
	}
}
