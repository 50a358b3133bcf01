//go:build unix

package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engines is what all servers are tested with.
var engines = map[string]struct {
	start   func(context.Context) (*server, error)
	given   string // the variable that must be empty
	several bool   // processes
}{
	"postgres": {start: func(ctx context.Context) (*server, error) {
		pg, err := StartPostgres(ctx)
		if err != nil {
			return nil, err
		}
		return &pg.server, nil
	}, given: "LASTWORD_TEST_POSTGRES", several: true},
	"mariadb": {start: func(ctx context.Context) (*server, error) {
		m, err := StartMariaDB(ctx)
		if err != nil {
			return nil, err
		}
		return &m.server, nil
	}, given: "LASTWORD_TEST_MYSQL"},
	"redis": {start: func(ctx context.Context) (*server, error) {
		r, err := StartRedis(ctx)
		if err != nil {
			return nil, err
		}
		return &r.server, nil
	}, given: "LASTWORD_TEST_REDIS"},
}

// asChild names an engine: it makes this test binary a process that starts a server, names its folder, and waits to be
// killed.
const asChild = "LASTWORD_TESTSERVER_CHILD"

func TestMain(m *testing.M) {
	name := os.Getenv(asChild)
	if name == "" {
		os.Exit(m.Run())
	}
	s, err := engines[name].start(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.folder)
	select {}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs the test once for each engine; start starts a server of it.
func each(t *testing.T, test func(t *testing.T, start func() *server)) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Setenv(engine.given, "")
			test(t, func() *server {
				s, err := engine.start(t.Context())
				ok(t, err)
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			})
		})
	}
}

// converse runs a client with an open session.
func converse(t *testing.T, session *exec.Cmd) (say func(string), answers <-chan string, end func()) {
	t.Helper()
	in, err := session.StdinPipe()
	ok(t, err)
	out, err := session.StdoutPipe()
	ok(t, err)
	ok(t, session.Start())
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	say = func(line string) {
		t.Helper()
		_, err := fmt.Fprintln(in, line)
		ok(t, err)
	}
	end = func() {
		t.Helper()
		ok(t, in.Close())
		for line := range lines {
			t.Errorf("the session ends with %q", line)
		}
		ok(t, session.Wait())
	}
	return say, lines, end
}

// unharmed expects that a given server can be neither hurt nor ended.
func unharmed(t *testing.T, s *server) {
	t.Helper()
	for name, fault := range map[string]func(context.Context) error{
		"Stop": s.Stop, "Kill": s.Kill, "Freeze": s.Freeze, "Thaw": s.Thaw, "Restart": s.Restart,
	} {
		if err := fault(t.Context()); !errors.Is(err, ErrGiven) {
			t.Errorf("%s of a given server: %v", name, err)
		}
	}
	ok(t, s.Close())
}

func TestRestartWaitsForItsPort(t *testing.T) {
	each(t, func(t *testing.T, start func() *server) {
		one, other := start(), start()
		ok(t, one.Stop(t.Context()))
		ok(t, other.Stop(t.Context()))
		other.port = one.port
		ok(t, other.Restart(t.Context()))
		go func() {
			time.Sleep(300 * time.Millisecond)
			_ = other.Kill(context.Background())
		}()
		ok(t, one.Restart(t.Context()))

		// One who never gets it says why, and in time.
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := other.Restart(soon); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			t.Errorf("restart on a port in use: %v", err)
		}
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, start func() *server) {
		for _, state := range []string{"running", "frozen", "killed"} {
			s := start()
			segment := sharedMemory(t, s.folder)
			switch state {
			case "frozen":
				ok(t, s.Freeze(t.Context()))
			case "killed":
				ok(t, s.Kill(t.Context()))
			}
			ok(t, s.Close())
			gone(t, s.folder, segment, 0)
			ok(t, s.Close())
			if err := s.Restart(t.Context()); err == nil {
				t.Error("a closed server starts again")
			}
		}
	})
}

func TestServerDiesWithTheTestProcess(t *testing.T) {
	for name, engine := range engines {
		for _, state := range []string{"running", "frozen"} {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), asChild+"="+name, engine.given+"=")
			out, err := child.StdoutPipe()
			ok(t, err)
			ok(t, child.Start())
			folder, err := bufio.NewReader(out).ReadString('\n')
			ok(t, err)
			folder = strings.TrimSpace(folder)
			pids, err := processesIn(folder)
			if err != nil || len(pids) == 0 || engine.several && len(pids) < 2 {
				t.Fatalf("the child says %q, where processes %v run (%v)", folder, pids, err)
			}
			segment := sharedMemory(t, folder)
			if state == "frozen" {
				for _, pid := range pids {
					process, err := os.FindProcess(pid)
					ok(t, err)
					ok(t, process.Signal(syscall.SIGSTOP))
				}
			}
			ok(t, child.Process.Kill())
			_ = child.Wait() // "signal: killed"
			gone(t, folder, segment, 10*time.Second)
		}
	}
}

// A program that hangs while the data folder is made is ended with what it started.
func TestRunEndsWithItsContext(t *testing.T) {
	s := &server{folder: t.TempDir()}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.run(soon, "/bin/sh", "-c", "sleep 60; true"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// sharedMemory returns the id of the segment that a PostgreSQL in folder holds; for others "".
func sharedMemory(t *testing.T, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	ok(t, err)
	return strings.Fields(strings.Split(string(text), "\n")[6])[1]
}

// gone waits until neither processes nor the folder nor the shared memory are left.
func gone(t *testing.T, folder, segment string, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		pids, err := processesIn(folder)
		ok(t, err)
		_, err = os.Stat(folder)
		segments, _ := os.ReadFile("/proc/sysvipc/shm") // Linux has it
		held := segment != "" && strings.Contains(string(segments), " "+segment+" ")
		if len(pids) == 0 && errors.Is(err, os.ErrNotExist) && !held {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: processes %v, folder %v, shared memory %v", pids, err, held)
		}
	}
}
