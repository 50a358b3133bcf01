package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword-go/lastword"
)

func TestRunExitStatus(t *testing.T) {
	notExecutable := writeFile(t, "plain", "echo")
	noProgram := writeFile(t, "text", "no #! line")
	if err := os.Chmod(noProgram, 0o700); err != nil {
		t.Fatal(err)
	}
	onEngines(t, func(t *testing.T, db string) {
		for _, test := range []struct {
			args   []string
			status int
			says   string
		}{
			{[]string{"job", "--", "true"}, 0, ""},
			{[]string{"job", "--ttl", "5s", "--", "sh", "-c", "exit 3"}, 3, ""},
			{[]string{"job", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
			{[]string{"job", "--", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
			{[]string{"job", "--", "echo", "--", "-x", "--ttl"}, 0, "-- -x --ttl"},
			{[]string{"job", "--", "no-such-command"}, 127, "no-such-command cannot be started"},
			{[]string{"job", "--", notExecutable}, 126, "permission denied"},
			{[]string{"job", "--", noProgram}, 126, "#!"},
			{[]string{"job", "--", "sh", "-c", "sleep 1000 & echo left"}, 0, "left processes running"},
			{[]string{"job"}, exitUsage, "<command>"},
			{[]string{"no name", "--", "true"}, exitUsage, "no name"},
			{[]string{"job", "--ttl", "1ms", "--", "true"}, exitUsage, "TTL"},
			{[]string{"job", "--held-exit", "300", "--", "true"}, exitUsage, "--held-exit"},
		} {
			t.Run(strings.Join(test.args, " "), func(t *testing.T) {
				r := startRun(t, db, test.args...)
				r.wantStatus(test.status, test.says)
				if test.status != exitUsage && leaseState(t, db, "job") != "released" {
					t.Errorf("the lease is %s afterwards", leaseState(t, db, "job"))
				}
			})
		}
	})
}

// The command can use its token with the program itself, from another folder too.
func TestRunEnvironment(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		t.Setenv("FENCE_TOKEN", "an outer one")
		script := `cd / && "$PROGRAM" lease held && echo "held $LEASE_NAME $FENCE_EPOCH" && cat && "$PROGRAM" lease show "$LEASE_NAME" && echo "$FENCE_TOKEN"`
		r := startRun(t, db, "a/b:c", "--label", "nightly", "--", "sh", "-c", script)
		fmt.Fprintln(r.stdin, "through stdin")
		_ = r.stdin.Close()
		r.wantStatus(0, "held a/b:c 1\n", "through stdin\n", "lease a/b:c: held, fence 1", " nightly\n")
		lines := strings.Fields(r.out.String())
		if token, err := lastword.ParseToken(lines[len(lines)-1]); err != nil || token.Name != "a/b:c" || token.Epoch != 1 {
			t.Errorf("FENCE_TOKEN is not a whole token: %v", err)
		}
	})
}

func TestRunWhileHeld(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		first := startRun(t, db, "job", "--", "sh", "-c", "echo ready; cat")
		first.says("ready")
		startRun(t, db, "job", "--", "echo", "must not run").wantStatus(exitHeld, `lease "job" is held by`)
		startRun(t, db, "job", "--held-exit", "0", "--", "false").wantStatus(0)
		startRun(t, db, "job", "--wait", "200ms", "--", "false").wantStatus(exitHeld)
		impatient := startRun(t, db, "job", "--wait", "1h", "--", "false")
		waiting := startRun(t, db, "job", "--wait", "1m", "--", "echo", "its turn")
		impatient.says("waiting for the lease")
		impatient.signal(syscall.SIGTERM)
		impatient.wantStatus(128 + 15)
		_ = first.stdin.Close()
		first.wantStatus(0)
		waiting.wantStatus(0, "its turn")
	})
}

func TestRunPassesSignalsOn(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		polite := startRun(t, db, "polite", "--", "sh", "-c", `trap 'echo told; exit 7' TERM; sleep 1000 & echo ready; wait`)
		polite.says("ready")
		polite.signal(syscall.SIGTERM)
		polite.wantStatus(7, "told")
		if state := leaseState(t, db, "polite"); state != "released" {
			t.Errorf("the lease is %s", state)
		}
		plain := startRun(t, db, "plain", "--", "sh", "-c", "echo ready; exec sleep 1000")
		plain.says("ready")
		plain.signal(syscall.SIGINT)
		plain.wantStatus(128 + 2)
	})
}

func TestRunLosesItsLease(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		command, pids := stubborn(t)
		r := startRun(t, db, append([]string{"job", "--ttl", "2s", "--grace", "200ms", "--"}, command...)...)
		r.says("ready")
		var nonce string
		if err := openDB(t, db).QueryRowContext(t.Context(), "SELECT owner FROM lastword_leases").Scan(&nonce); err != nil {
			t.Fatal(err)
		}
		takeOver(t, db)
		r.wantStatus(exitLost, `lease "job" was lost while its command ran`, "somebody else")
		if strings.Contains(r.out.String(), nonce[:7]) {
			t.Errorf("more than six characters of the nonce are printed:\n%s", &r.out)
		}
		for _, pid := range pids() {
			if !gone(pid) {
				t.Errorf("process %d still runs when lastword run has ended", pid)
			}
		}
		if state := leaseState(t, db, "job"); state == "released" {
			t.Error("it released the lease of another")
		}
	})
}

// A command that ends by itself before the loss is noticed has run without a lease all the same.
func TestRunLosesItsLeaseAtTheEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		r := startRun(t, db, "job", "--ttl", "1h", "--", "sh", "-c", "echo ready; cat")
		r.says("ready")
		takeOver(t, db)
		_ = r.stdin.Close()
		r.wantStatus(exitLost, "taken over")
	})
}

func TestRunIsKilled(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		command, pids := stubborn(t)
		r := startRun(t, db, append([]string{"job", "--"}, command...)...)
		r.says("ready")
		r.signal(syscall.SIGKILL)
		<-r.ended
		allGone(t, pids())
	})
}

func TestRunIsFrozen(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		command, pids := stubborn(t)
		r := startRun(t, db, append([]string{"job", "--ttl", "3s", "--"}, command...)...)
		r.says("ready")
		r.signal(syscall.SIGSTOP)
		allGone(t, pids()) // while lastword run is still stopped
		// Nobody could take over before: the command was over when the lease was.
		must(t, "lease", "acquire", "--db", db, "--ttl", "1m", "--wait", "10s", "job")
		r.signal(syscall.SIGCONT)
		r.wantStatus(exitLost, `lease "job" was lost`)
		if state := leaseState(t, db, "job"); state != "held" {
			t.Errorf("the successor's lease is %s", state)
		}
	})
}

// Where the database does not answer, the command is over before the lease is.
func TestRunCannotRenew(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
	command, pids := stubborn(t)
	r := startRun(t, db, append([]string{"job", "--ttl", "3s", "--"}, command...)...)
	r.says("ready")
	conn, err := openDB(t, db).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	allGone(t, pids())
	var live bool
	if err := conn.QueryRowContext(t.Context(), "SELECT leased_until > unixepoch('subsec') * 1000 FROM lastword_leases").Scan(&live); err != nil || !live {
		t.Errorf("the lease was over before the command was: %v, %v", live, err)
	}
	if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	r.wantStatus(exitLost)
}

// The supervisor's own death is seen by lastword run, which ends what it left.
func TestRunsSupervisorIsKilled(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		command, pids := stubborn(t)
		r := startRun(t, db, append([]string{"job", "--", "sh", "-c", `echo "supervisor $PPID"; exec "$@"`, "sh"}, command...)...)
		r.says("ready")
		var supervisor int
		if _, err := fmt.Sscanf(r.out.String(), "supervisor %d", &supervisor); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.wantStatus(exitFail, "supervised")
		for _, pid := range pids() {
			if !gone(pid) {
				t.Errorf("process %d still runs when lastword run has ended", pid)
			}
		}
		if state := leaseState(t, db, "job"); state != "released" {
			t.Errorf("the lease is %s", state)
		}
	})
}
