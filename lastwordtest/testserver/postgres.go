//go:build unix

package testserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Postgres is a PostgreSQL server for tests. It trusts every local user: it is no place for anything but test data.
type Postgres struct {
	server
	psql string // the client
	base string // URL of the database "postgres"
}

// StartPostgres starts a private PostgreSQL and returns when it answers. Commits are durable as in production (fsync is on),
// so that Kill tests something; it has 200 connections and runs as user postgres where we are root. The context bounds
// the start only. LASTWORD_TEST_POSTGRES=postgres://… uses that server instead.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	if given := os.Getenv("LASTWORD_TEST_POSTGRES"); given != "" {
		return givenPostgres(given)
	}
	bin, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := ownerFor("postgres")
	if err != nil {
		return nil, err
	}
	p := &Postgres{server: server{engine: postgresEngine(bin), owner: owner}, psql: filepath.Join(bin, "psql")}
	if _, err := os.Stat(p.psql); err != nil {
		p.psql = "psql" // some builds come without the client
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.initialize(ctx, bin); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.base = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
	return p, nil
}

func givenPostgres(given string) (*Postgres, error) {
	if u, err := url.Parse(given); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("testserver: LASTWORD_TEST_POSTGRES must be a URL, as postgres://user:password@host:port/database")
	}
	return &Postgres{server: server{engine: engine{name: "postgres"}, given: true}, psql: "psql", base: given}, nil
}

// URL names the server's own database. Tests that write use NewDatabase.
func (p *Postgres) URL() string { return p.base }

// NewDatabase makes an empty database and returns its URL. drop removes it, with its open connections; on a private server
// that is not running at the time there is nothing to drop.
func (p *Postgres) NewDatabase(ctx context.Context) (dbURL string, drop func(), err error) {
	u, err := url.Parse(p.base)
	if err != nil {
		return "", nil, err
	}
	name := "lw_" + strings.ToLower(rand.Text())
	u.Path = "/" + name
	if _, err := p.query(ctx, p.base, `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		return "", nil, fmt.Errorf("testserver: new database: %w", err)
	}
	drop = func() {
		if !p.given && !p.answers() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := p.query(ctx, p.base, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil && p.given {
			fmt.Fprintf(os.Stderr, "testserver: database %s stays behind: %v\n", name, err)
		}
	}
	return u.String(), drop, nil
}

// query runs one statement through psql and returns its rows as bare text.
func (p *Postgres) query(ctx context.Context, dbURL, sql string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, p.psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", dbURL, "-c", sql)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if !p.given { // a given server may need PGPASSWORD and its like; ours must not be misled by them
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	}
	if err := cmd.Run(); err != nil {
		return "", errors.Join(context.Cause(ctx), fmt.Errorf("psql: %w: %s", err, strings.TrimSpace(complaint.String())))
	}
	return strings.TrimSpace(out.String()), nil
}

// initialize makes the data folder. It need not be synced: it dies with the test anyway.
func (p *Postgres) initialize(ctx context.Context, bin string) error {
	return p.run(ctx, filepath.Join(bin, "initdb"), "-D", filepath.Join(p.folder, "data"), "-U", "postgres",
		"--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
}

func postgresEngine(bin string) engine {
	return engine{
		name: "postgres",
		args: func(folder string, port int) []string {
			return []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(folder, "data"),
				"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port),
				"-c", "unix_socket_directories=", // a socket's path may not be longer than 107 bytes
				"-c", "dynamic_shared_memory_type=mmap", // in the folder: a killed server leaves nothing in /dev/shm
				"-c", "max_connections=200", "-c", "fsync=on", "-c", "synchronous_commit=on"}
		},
		ready:     postgresReady,
		terminate: syscall.SIGINT, // "fast": ends sessions and writes a checkpoint; SIGTERM would wait for the sessions
		transient: []string{"Address already in use", "shared memory block", `"postmaster.pid" already exists`},
		// The seventh line of postmaster.pid has key and id of a small segment that only an orderly end removes; the kernel
		// has room for some thousands.
		sweep: `set -- $(sed -n 7p "$folder/data/postmaster.pid" 2>/dev/null); [ -z "$2" ] || ipcrm -m "$2" 2>/dev/null`,
	}
}

// postgresReady reads what pg_ctl reads: the first line of postmaster.pid is the process, the eighth its state.
func postgresReady(folder string, _, pid int) bool {
	text, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// findPostgres returns the folder of the server's programs, which it installs where they are missing and we may.
func findPostgres(ctx context.Context) (string, error) {
	if bin := lookForPostgres(); bin != "" {
		return bin, nil
	}
	err := install(ctx, "PostgreSQL", lookForPostgres,
		[]string{"apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql-common"},
		// Debian would make and start a server of its own, which nobody needs.
		[]string{"sh", "-c", "echo 'create_main_cluster = false' >>/etc/postgresql-common/createcluster.conf"},
		[]string{"apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"})
	if err != nil {
		return "", err
	}
	if bin := lookForPostgres(); bin != "" {
		return bin, nil
	}
	return "", errors.New("testserver: PostgreSQL was installed, and yet pg_ctl is neither in PATH nor in /usr/lib/postgresql/*/bin")
}

func lookForPostgres() string {
	var folders []string
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	version := func(folder string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder))) // not a number: oldest
		return n
	}
	slices.SortFunc(packaged, func(a, b string) int { return version(b) - version(a) })
	for _, folder := range append(folders, packaged...) {
		if executable(filepath.Join(folder, "postgres")) && executable(filepath.Join(folder, "initdb")) {
			return folder
		}
	}
	return ""
}
