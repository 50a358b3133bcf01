package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword-go/lastword/app/internal/database"
)

// runProcess is a real "lastword run", or any other command of the program.
type runProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   buffer
	ended chan struct{}
}

// buffer is what a process has printed so far, both streams together.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func startRun(t *testing.T, db string, args ...string) *runProcess {
	t.Helper()
	r := newProcess(t, os.Args[0], append([]string{"run", "--db", db}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	r.start()
	return r
}

// newProcess prepares a process that finds the program in PROGRAM.
func newProcess(t *testing.T, name string, args ...string) *runProcess {
	r := &runProcess{t: t, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	// The race detector waits for a second at each exit unless told not to.
	r.cmd.Env = append(os.Environ(), asLastword+"=1", "PROGRAM="+os.Args[0], "GORACE=atexit_sleep_ms=0")
	r.cmd.WaitDelay = 10 * time.Second
	return r
}

func (r *runProcess) start() {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
	})
}

// status waits for the end.
func (r *runProcess) status() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		r.t.Fatalf("lastword run did not end; it printed\n%s", &r.out)
		return -1
	}
}

func (r *runProcess) wantStatus(want int, says ...string) {
	r.t.Helper()
	if got := r.status(); got != want {
		r.t.Errorf("exit status %d, want %d; it printed\n%s", got, want, &r.out)
	}
	for _, text := range says {
		if !strings.Contains(r.out.String(), text) {
			r.t.Errorf("it did not say %q but\n%s", text, &r.out)
		}
	}
}

// says waits until it has printed the text.
func (r *runProcess) says(text string) {
	r.t.Helper()
	var ended time.Time
	eventually(r.t, fmt.Sprintf("%q is printed", text), func() bool {
		select {
		case <-r.ended:
			if ended.IsZero() {
				ended = time.Now()
			} else if time.Since(ended) > 2*time.Second { // a terminal's text comes a moment later
				r.t.Fatalf("it ended with %v and did not print %q but\n%s", r.cmd.ProcessState, text, &r.out)
			}
		default:
		}
		return strings.Contains(r.out.String(), text)
	})
}

func (r *runProcess) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// stubborn is a command that cannot be stopped but by SIGKILL, with a child, and one more in a session of its own where there is
// setsid. It writes their numbers to a file, then says "ready".
func stubborn(t *testing.T) (command []string, pids func() []int) {
	file := filepath.Join(t.TempDir(), "pids")
	script := `trap '' TERM INT HUP
		sleep 1000 & echo $! >>"$0"
		if command -v setsid >/dev/null; then setsid sh -c 'echo $$ >>"$0"; exec sleep 1000' "$0" & fi
		while [ "$(wc -l <"$0")" -lt "$1" ]; do sleep 0.02; done
		echo $$ >>"$0"; echo ready
		while :; do sleep 0.05; done`
	others := 1
	if _, err := exec.LookPath("setsid"); err == nil {
		others = 2
	}
	return []string{"sh", "-c", script, file, strconv.Itoa(others)}, func() []int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found []int
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, pid)
		}
		if len(found) != others+1 {
			t.Fatalf("%d processes, want %d", len(found), others+1)
		}
		return found
	}
}

// gone: a zombie that nobody waits for counts as gone.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func allGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return gone(pid) })
	}
}

func openDB(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, _, err := database.Connect(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// takeOver is a takeover as the lease's row shows it.
func takeOver(t *testing.T, db string) {
	t.Helper()
	if _, err := openDB(t, db).ExecContext(t.Context(), "UPDATE lastword_leases SET fence = fence + 1, owner = 'x', holder = 'somebody else'"); err != nil {
		t.Fatal(err)
	}
}

func leaseState(t *testing.T, db, name string) string {
	t.Helper()
	out := must(t, "lease", "show", "--db", db, name)
	state, _, _ := strings.Cut(strings.TrimPrefix(out, "lease "+name+": "), ",")
	return state
}

func onEngines(t *testing.T, test func(t *testing.T, db string)) {
	for _, engine := range engines(t) {
		t.Run(engine.name, func(t *testing.T) { test(t, engine.db(t)) })
	}
}
