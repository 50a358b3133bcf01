//go:build unix

package testserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MariaDB is a MariaDB server for tests, or a MySQL where that is what the machine has. Its root needs no password: it is
// no place for anything but test data.
type MariaDB struct {
	server
	client  string // the command line client
	base    string // URL without a database
	version string
}

// StartMariaDB starts a private MariaDB and returns when it answers. Commits are durable as in production
// (innodb_flush_log_at_trx_commit is 1), so that Kill tests something; it has 300 connections, speaks utf8mb4, and runs as
// user mysql where we are root. The context bounds the start only. LASTWORD_TEST_MYSQL=mysql://… uses that server instead.
func StartMariaDB(ctx context.Context) (*MariaDB, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if given := os.Getenv("LASTWORD_TEST_MYSQL"); given != "" {
		return givenMariaDB(ctx, given)
	}
	daemon, err := findMariaDB(ctx)
	if err != nil {
		return nil, err
	}
	said, err := exec.CommandContext(ctx, daemon, "--no-defaults", "--version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("testserver: %s --version: %w\n%s", daemon, err, said)
	}
	owner, err := ownerFor("mysql")
	if err != nil {
		return nil, err
	}
	version := mariadbVersion(string(said))
	m := &MariaDB{server: server{engine: mariadbEngine(daemon, version), owner: owner}, client: mariadbClient(), version: version}
	if err := m.open(); err != nil {
		return nil, err
	}
	if err := m.initialize(ctx, daemon); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.base = fmt.Sprintf("mysql://root@127.0.0.1:%d/", m.port)
	return m, nil
}

// givenMariaDB asks the server for its version: it fails where nobody answers.
func givenMariaDB(ctx context.Context, given string) (*MariaDB, error) {
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Hostname() == "" {
		return nil, errors.New("testserver: LASTWORD_TEST_MYSQL must be a URL, as mysql://user:password@host:port/")
	}
	m := &MariaDB{server: server{engine: engine{name: "mariadb"}, given: true}, client: mariadbClient(), base: given}
	said, err := m.query(ctx, given, `SELECT VERSION()`)
	if err != nil {
		return nil, fmt.Errorf("testserver: LASTWORD_TEST_MYSQL: %w", err)
	}
	m.version = mariadbVersion(said)
	return m, nil
}

// URL names the server without a database, as mysql://root@127.0.0.1:15432/. Tests that write use NewDatabase.
func (m *MariaDB) URL() string { return m.base }

// DSN is URL as github.com/go-sql-driver/mysql wants it.
func (m *MariaDB) DSN() string {
	dsn, _ := MySQLDSN(m.base) // it was parsed, or made by us
	return dsn
}

// Version says which server it is, as "MariaDB 10.11.19" or "MySQL 8.0.36".
func (m *MariaDB) Version() string { return m.version }

// MySQLDSN turns a URL, such as NewDatabase returns, into what github.com/go-sql-driver/mysql wants:
// mysql://root@127.0.0.1:15432/lw_x becomes root@tcp(127.0.0.1:15432)/lw_x. A query stays as it is: the driver's options
// can be written there.
func MySQLDSN(dbURL string) (string, error) {
	u, err := url.Parse(dbURL)
	if err != nil {
		return "", fmt.Errorf("testserver: %w", err)
	}
	user := u.User.Username()
	if password, set := u.User.Password(); set {
		user += ":" + password
	}
	if user != "" {
		user += "@"
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	dsn := fmt.Sprintf("%stcp(%s)/%s", user, address, url.PathEscape(strings.TrimPrefix(u.Path, "/")))
	if u.RawQuery != "" {
		dsn += "?" + u.RawQuery
	}
	return dsn, nil
}

// NewDatabase makes an empty database and returns its URL; MySQLDSN turns that into what the driver wants. drop removes it,
// and ends its open connections; on a private server that is not running at the time there is nothing to drop.
func (m *MariaDB) NewDatabase(ctx context.Context) (dbURL string, drop func(), err error) {
	u, err := url.Parse(m.base)
	if err != nil {
		return "", nil, err
	}
	name := "lw_" + strings.ToLower(rand.Text())
	u.Path = "/" + name
	if _, err := m.query(ctx, m.base, `CREATE DATABASE `+name+` CHARACTER SET utf8mb4`); err != nil {
		return "", nil, fmt.Errorf("testserver: new database: %w", err)
	}
	drop = func() {
		if !m.given && !m.answers() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.drop(ctx, name); err != nil && m.given {
			fmt.Fprintf(os.Stderr, "testserver: database %s stays behind: %v\n", name, err)
		}
	}
	return u.String(), drop, nil
}

// drop first ends the sessions in the database: DROP DATABASE would wait for their transactions.
func (m *MariaDB) drop(ctx context.Context, name string) error {
	sessions, err := m.query(ctx, m.base, `SELECT id FROM information_schema.processlist WHERE db = '`+name+`'`)
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(sessions) {
		_, _ = m.query(ctx, m.base, `KILL `+id) // it may have ended just now
	}
	_, err = m.query(ctx, m.base, `SET lock_wait_timeout = 5; DROP DATABASE IF EXISTS `+name)
	return err
}

// query runs statements through the client and returns their rows as bare text, columns divided by tabs.
func (m *MariaDB) query(ctx context.Context, dbURL, sql string) (string, error) {
	u, err := url.Parse(dbURL)
	if err != nil {
		return "", err
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, m.client, append(clientArgs(u), "--execute="+sql)...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	if password, set := u.User.Password(); set {
		cmd.Env = append(cmd.Env, "MYSQL_PWD="+password) // the command line can be read by everybody
	}
	if err := cmd.Run(); err != nil {
		return "", errors.Join(context.Cause(ctx), fmt.Errorf("%s: %w: %s", m.client, err, strings.TrimSpace(complaint.String())))
	}
	return strings.TrimSpace(out.String()), nil
}

func clientArgs(u *url.URL) []string {
	return []string{"--no-defaults", "--protocol=tcp", "--host=" + u.Hostname(), "--port=" + cmp.Or(u.Port(), "3306"),
		"--user=" + cmp.Or(u.User.Username(), "root"), "--database=" + strings.TrimPrefix(u.Path, "/"),
		"--default-character-set=utf8mb4", "--batch", "--skip-column-names", "--unbuffered"}
}

// initialize makes the data folder.
func (m *MariaDB) initialize(ctx context.Context, daemon string) error {
	data := "--datadir=" + filepath.Join(m.folder, "data")
	if !strings.HasPrefix(m.version, "MariaDB") {
		return m.run(ctx, daemon, "--no-defaults", "--initialize-insecure", data)
	}
	prefix := filepath.Dir(filepath.Dir(daemon))
	program := lookFor([]string{"mariadb-install-db", "mysql_install_db"}, filepath.Join(prefix, "bin"), filepath.Join(prefix, "scripts"))
	if program == "" {
		return fmt.Errorf("testserver: %s is there, but mariadb-install-db is neither in PATH nor in %s/bin", daemon, prefix)
	}
	return m.run(ctx, program, "--no-defaults", data, "--tmpdir="+m.folder,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
}

func mariadbEngine(daemon, version string) engine {
	own := "--skip-name-resolve"
	if !strings.HasPrefix(version, "MariaDB") {
		// There root exists for localhost only, which is what 127.0.0.1 is called when names are resolved. And another
		// protocol would listen on a port of its own.
		own = "--mysqlx=OFF"
	}
	return engine{
		name: "mariadb",
		args: func(folder string, port int) []string {
			return []string{daemon, "--no-defaults", "--datadir=" + filepath.Join(folder, "data"), "--tmpdir=" + folder,
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
				"--socket=s.sock", "--pid-file=pid", // in the data folder; an absolute socket path may not be longer than 107 bytes
				"--max-connections=300", "--innodb-flush-log-at-trx-commit=1", "--character-set-server=utf8mb4", own}
		},
		ready:     mariadbReady,
		terminate: syscall.SIGTERM, // ends sessions
		transient: []string{"Address already in use"},
	}
}

// mariadbReady first looks for the process id, which the server writes when it has its port: before that, somebody else
// may have it. The server then greets who connects: four bytes of header, and version 10 of the protocol.
func mariadbReady(folder string, port, pid int) bool {
	text, err := os.ReadFile(filepath.Join(folder, "data", "pid"))
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(pid) {
		return false
	}
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // fails only on a closed connection
	var greeting [5]byte
	_, err = io.ReadFull(conn, greeting[:])
	return err == nil && greeting[4] == 10
}

// mariadbVersion reads what SELECT VERSION() or mysqld --version says.
func mariadbVersion(said string) string {
	product, number := "MySQL", "of unknown version"
	if strings.Contains(said, "MariaDB") {
		product = "MariaDB"
	}
	for _, word := range strings.Fields(said) {
		if word[0] >= '0' && word[0] <= '9' {
			number, _, _ = strings.Cut(word, "-")
			break
		}
	}
	return product + " " + number
}

// findMariaDB returns the server's program, which it installs where it is missing and we may.
func findMariaDB(ctx context.Context) (string, error) {
	if daemon := lookForMariaDB(); daemon != "" {
		return daemon, nil
	}
	if err := install(ctx, "MariaDB", lookForMariaDB, withoutService("mariadb", "mariadb-server")); err != nil {
		return "", err
	}
	if daemon := lookForMariaDB(); daemon != "" {
		return daemon, nil
	}
	return "", errors.New("testserver: MariaDB was installed, and yet mariadbd is neither in PATH nor in /usr/sbin")
}

func lookForMariaDB() string {
	return lookFor([]string{"mariadbd", "mysqld"}, "/usr/sbin", "/usr/libexec", "/usr/local/sbin")
}

func mariadbClient() string {
	return cmp.Or(lookFor([]string{"mariadb", "mysql"}), "mariadb")
}
