//go:build unix

package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func startRedis(t *testing.T) *Redis {
	t.Helper()
	t.Setenv("LASTWORD_TEST_REDIS", "")
	r, err := StartRedis(t.Context())
	ok(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func redisCLI(ctx context.Context, r *Redis, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(r.Addr())
	return exec.CommandContext(ctx, "redis-cli", append([]string{"-e", "--raw", "-h", host, "-p", port}, args...)...)
}

func askRedis(t *testing.T, r *Redis, args ...string) string {
	t.Helper()
	out, err := redisCLI(t.Context(), r, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestRedisKillKeepsWhatWasAcknowledged(t *testing.T) {
	r := startRedis(t)
	t.Log(r.Version(), r.Addr())
	for setting, want := range map[string]string{"appendonly": "yes", "appendfsync": "always", "save": "", "bind": "127.0.0.1"} {
		if got := strings.TrimPrefix(askRedis(t, r, "CONFIG", "GET", setting), setting); strings.TrimSpace(got) != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	for n := range 3 {
		askRedis(t, r, "SET", fmt.Sprint("kept", n), "yes")
		ok(t, r.Kill(t.Context()))
		if pids, err := processesIn(r.folder); err != nil || len(pids) > 0 {
			t.Fatalf("after Kill: processes %v, %v", pids, err)
		}
		if err := redisCLI(t.Context(), r, "PING").Run(); err == nil {
			t.Fatal("a killed server answers")
		}
		ok(t, r.Restart(t.Context()))
		if got, want := askRedis(t, r, "DBSIZE"), fmt.Sprint(n+1); got != want {
			t.Fatalf("%s keys after the kill, want %s", got, want)
		}
	}
	ok(t, r.Stop(t.Context()))
	ok(t, r.Stop(t.Context()))
	ok(t, r.Restart(t.Context()))
	ok(t, r.Restart(t.Context()))
	if got := askRedis(t, r, "MGET", "kept0", "kept1", "kept2"); got != "yes\nyes\nyes" {
		t.Fatalf("after Stop and Restart: %q", got)
	}
}

func TestRedisFreeze(t *testing.T) {
	r := startRedis(t)
	say, answers, end := converse(t, redisCLI(t.Context(), r))
	say("ECHO before")
	if got := <-answers; got != "before" {
		t.Fatalf("the session says %q", got)
	}

	ok(t, r.Freeze(t.Context()))
	say("ECHO during")
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out, err := redisCLI(soon, r, "PING").CombinedOutput(); soon.Err() == nil {
		t.Errorf("a frozen server answers a new client: %q, %v", out, err)
	}
	briefly, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := redisFacts(briefly, r.Addr()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server says who it is: %v", err)
	}
	select {
	case answer := <-answers:
		t.Errorf("a frozen server answers an open session: %q", answer)
	default:
	}

	ok(t, r.Thaw(t.Context()))
	if got := <-answers; got != "during" {
		t.Errorf("after the thaw the session says %q", got)
	}
	if got := askRedis(t, r, "PING"); got != "PONG" {
		t.Errorf("after the thaw a new client hears %q", got)
	}
	end()

	ok(t, r.Freeze(t.Context()))
	ok(t, r.Stop(t.Context()))
	ok(t, r.Restart(t.Context()))
	ok(t, r.Freeze(t.Context()))
	ok(t, r.Kill(t.Context()))
	if err := r.Freeze(t.Context()); err == nil {
		t.Error("a killed server can be frozen")
	}
}

func TestRedisGiven(t *testing.T) {
	private := startRedis(t)
	t.Setenv("LASTWORD_TEST_REDIS", private.Addr())
	r, err := StartRedis(t.Context())
	ok(t, err)
	if r.Addr() != private.Addr() || r.Version() != private.Version() {
		t.Errorf("%s at %s, want %s at %s", r.Version(), r.Addr(), private.Version(), private.Addr())
	}
	unharmed(t, &r.server)
	askRedis(t, private, "PING")

	for _, wrong := range []string{"redis://127.0.0.1", "127.0.0.1:1", pretender(t, "+PONG\r\n$21\r\nredis_version:6.2.14\r\n\r\n"),
		pretender(t, "-NOAUTH Authentication required.\r\n")} {
		t.Setenv("LASTWORD_TEST_REDIS", wrong)
		if _, err := StartRedis(t.Context()); err == nil {
			t.Errorf("%s is accepted", wrong)
		} else {
			t.Log(err)
		}
	}
}

// pretender listens and gives everybody the same answer.
func pretender(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 100))
			_, _ = fmt.Fprint(conn, answer)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}
