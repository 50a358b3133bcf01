//go:build unix

package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Redis is a Redis server for tests. It asks nobody for a password: it is no place for anything but test data.
type Redis struct {
	server
	addr    string
	version string
}

// StartRedis starts a private Redis, 7 or later, and returns when it answers. Each write is in its append-only file and
// synced before it is acknowledged, so that Kill tests something; it runs as user redis where we are root. The context
// bounds the start only. LASTWORD_TEST_REDIS=host:port uses that server instead, which must not want a password.
func StartRedis(ctx context.Context) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if given := os.Getenv("LASTWORD_TEST_REDIS"); given != "" {
		return givenRedis(ctx, given)
	}
	daemon, err := findRedis(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := ownerFor("redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{server: server{engine: redisEngine(daemon), owner: owner}}
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.addr = fmt.Sprintf("127.0.0.1:%d", r.port)
	if err := r.identify(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func givenRedis(ctx context.Context, given string) (*Redis, error) {
	if _, _, err := net.SplitHostPort(given); err != nil {
		return nil, fmt.Errorf("testserver: LASTWORD_TEST_REDIS must be host:port: %w", err)
	}
	r := &Redis{server: server{engine: engine{name: "redis"}, given: true}, addr: given}
	if err := r.identify(ctx); err != nil {
		return nil, fmt.Errorf("LASTWORD_TEST_REDIS: %w", err)
	}
	return r, nil
}

// Addr is the server's host:port. All tests of a server share its databases: they keep apart by the names of their keys.
func (r *Redis) Addr() string { return r.addr }

// Version says which server it is, as "Redis 7.0.15".
func (r *Redis) Version() string { return r.version }

// identify asks for the version and refuses an old one.
func (r *Redis) identify(ctx context.Context) error {
	facts, err := redisFacts(ctx, r.addr)
	if err != nil {
		return fmt.Errorf("testserver: redis: %w", err)
	}
	number := facts["redis_version"]
	major, _, _ := strings.Cut(number, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("testserver: the Redis at %s has version %q; the tests need 7 or later", r.addr, number)
	}
	r.version = "Redis " + number
	return nil
}

func redisEngine(daemon string) engine {
	return engine{
		name: "redis",
		args: func(folder string, port int) []string {
			return []string{daemon, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", folder,
				// Never by CONFIG SET while it runs: until the file has been rewritten for the first time, a killed server
				// loses what it acknowledged.
				"--appendonly", "yes", "--appendfsync", "always", "--save", ""}
		},
		ready: func(_ string, port, pid int) bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			facts, err := redisFacts(ctx, fmt.Sprintf("127.0.0.1:%d", port))
			return err == nil && facts["process_id"] == strconv.Itoa(pid) // the port may be somebody else's
		},
		terminate: syscall.SIGTERM,
		transient: []string{"Address already in use"},
	}
}

// redisFacts returns what INFO says about the server; one that still loads its data is an error.
func redisFacts(ctx context.Context, addr string) (map[string]string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unwatch()
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	answer := bufio.NewReader(conn)
	pong, err := answer.ReadString('\n')
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	if pong != "+PONG\r\n" {
		return nil, fmt.Errorf("it answers PING with %q", pong)
	}
	head, err := answer.ReadString('\n')
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil || size < 0 || size > 1<<20 {
		return nil, fmt.Errorf("it answers INFO with %q", head)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(answer, text); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = value
	}
	return facts, nil
}

// findRedis returns the server's program, which it installs where it is missing and we may.
func findRedis(ctx context.Context) (string, error) {
	if daemon := lookForRedis(); daemon != "" {
		return daemon, nil
	}
	if err := install(ctx, "Redis", lookForRedis, withoutService("redis-server", "redis-server")); err != nil {
		return "", err
	}
	if daemon := lookForRedis(); daemon != "" {
		return daemon, nil
	}
	return "", errors.New("testserver: Redis was installed, and yet redis-server is neither in PATH nor in /usr/bin")
}

func lookForRedis() string { return lookFor([]string{"redis-server"}, "/usr/bin", "/usr/sbin") }
