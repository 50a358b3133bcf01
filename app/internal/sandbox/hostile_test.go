//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tight are limits that a hostile program reaches soon.
func tight() Limits {
	return Limits{CPU: 500 * time.Millisecond, Wall: 5 * time.Second, Memory: 64 << 20, Processes: 16, Output: 1 << 20, Stderr: 64 << 10, FileSize: 4 << 20}
}

func TestPayloads(t *testing.T) {
	bin := build(t, hostile)
	deep := func(l *Limits) { l.Memory, l.CPU = 256<<20, 5*time.Second }
	wall := func(l *Limits) { l.Wall = 200 * time.Millisecond }
	tests := []struct {
		do     string
		stdin  string
		limit  func(*Limits)
		want   Outcome
		code   int
		signal syscall.Signal
		stdout string
	}{
		{do: "sum", stdin: "3 4", want: Exited, stdout: "7\n"},
		{do: "echo", stdin: "no newline at the end", want: Exited, stdout: "no newline at the end"},
		{do: "echo", want: Exited},
		{do: "exit3", stdin: strings.Repeat("never read", 100_000), want: Exited, code: 3},
		{do: "loop", want: CPULimit},
		{do: "sleep", limit: wall, want: WallLimit},
		{do: "hog", want: MemoryLimit},
		{do: "childhog", want: MemoryLimit},
		{do: "flood", want: OutputLimit, stdout: strings.Repeat("x", 1<<20)},
		{do: "newlines", want: OutputLimit},
		{do: "bigfile", want: OutputLimit},
		{do: "daemon", want: Exited, stdout: "done\n"},
		{do: "orphans", want: Exited, stdout: "done\n", limit: func(l *Limits) { l.CPU = 5 * time.Second }},
		{do: "abort", want: Signaled, signal: syscall.SIGABRT},
		{do: "segv", want: Signaled, signal: syscall.SIGSEGV},
		{do: "kill9", want: Signaled, signal: syscall.SIGKILL},
		{do: "deep", limit: deep, want: Exited, stdout: "1\n"},
		{do: "threads", want: Exited, stdout: "ok\n"},
		{do: "fds", want: Exited},
		{do: "killinit", want: Exited, stdout: "alive\n"},
	}
	if runtime.GOARCH == "amd64" {
		tests = append(tests, tests[0])
		tests[len(tests)-1].do, tests[len(tests)-1].want, tests[len(tests)-1].stdout, tests[len(tests)-1].signal = "int80", Signaled, "", syscall.SIGSYS
	}
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "p", bin, 0o755)
		for _, tt := range tests {
			t.Run(tt.do, func(t *testing.T) {
				l := tight()
				if tt.limit != nil {
					tt.limit(&l)
				}
				r := mustRun(t, b, Command{Args: []string{"./p", tt.do}, Stdin: strings.NewReader(tt.stdin), Limits: l})
				if r.Outcome != tt.want || r.ExitCode != tt.code || r.Signal != tt.signal {
					t.Errorf("%s, code %d, signal %v, cpu %v, wall %v, memory %d; want %s, %d, %v", r.Outcome, r.ExitCode, r.Signal, r.CPU, r.Wall, r.Memory, tt.want, tt.code, tt.signal)
				}
				if tt.want != OutputLimit && string(r.Stdout) != tt.stdout || tt.want == OutputLimit && !bytes.HasPrefix(r.Stdout, []byte(tt.stdout)) {
					t.Errorf("stdout %.100q, want %.100q; stderr %.200q", r.Stdout, tt.stdout, r.Stderr)
				}
			})
		}
	})
}

// The kernel's own time limit counts whole seconds; this one must not.
func TestShortCPULimit(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "p", bin, 0o755)
		l := tight()
		l.CPU = 50 * time.Millisecond
		r := mustRun(t, b, Command{Args: []string{"./p", "loop"}, Limits: l})
		if r.Outcome != CPULimit || r.CPU < l.CPU || r.CPU > l.CPU+100*time.Millisecond || r.Wall < l.CPU/4 {
			t.Errorf("%s after %v of CPU time, want the limit soon after %v", r.Outcome, r.CPU, l.CPU)
		}
	})
}

func TestForkBomb(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "p", bin, 0o755)
		l := tight()
		l.Wall = 2 * time.Second
		r := mustRun(t, b, Command{Args: []string{"./p", "bomb"}, Limits: l})
		if r.Outcome != CPULimit && r.Outcome != WallLimit {
			t.Errorf("%s", r.Outcome)
		}
		// The sandbox works as before.
		if r := mustRun(t, b, Command{Args: []string{"./p", "exit3"}}); r.ExitCode != 3 {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

// A gigabyte of output may not pass through memory.
func TestFloodMemory(t *testing.T) {
	bin := build(t, hostile)
	s := newSandbox(t, ModeUserns)
	b := newBox(t, s)
	put(t, b, "p", bin, 0o755)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, do := range []string{"flood", "newlines"} {
		r := mustRun(t, b, Command{Args: []string{"./p", do}, Limits: tight()})
		if r.Outcome != OutputLimit || !r.Truncated {
			t.Errorf("%s: %s, truncated %v", do, r.Outcome, r.Truncated)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 32<<20 {
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
}

func TestRefusals(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "p", bin, 0o755)
		for _, do := range []string{"files", "calls"} {
			r := mustRun(t, b, Command{Args: []string{"./p", do}})
			if r.Outcome != Exited || r.ExitCode != 0 || bytes.Count(r.Stdout, []byte("\n")) < 15 {
				t.Errorf("%s: %s %v\n%s", do, r.Outcome, r.Signal, r.Stdout)
			}
			if bytes.Contains(r.Stdout, []byte("ALLOWED")) {
				t.Errorf("%s:\n%s", do, r.Stdout)
			}
			if do == "calls" && !bytes.Contains(r.Stdout, []byte("clone3 ENOSYS")) {
				t.Errorf("clone3 must look absent, so that the C library falls back:\n%s", r.Stdout)
			}
		}
	})
}

func TestPrivileges(t *testing.T) {
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		r := mustRun(t, b, Command{Args: []string{"/bin/cat", "/proc/self/status"}})
		for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(r.Stdout), want) {
				t.Errorf("no %q in\n%s", want, r.Stdout)
			}
		}
		if strings.Contains(string(r.Stdout), "Uid:\t0") {
			t.Errorf("runs as root:\n%s", r.Stdout)
		}
	})
}

func TestPython(t *testing.T) {
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "main.py", []byte("print(sum(map(int, input().split())))\n"), 0o644)
		r := mustRun(t, b, Command{Args: []string{"/usr/bin/python3", "main.py"}, Stdin: strings.NewReader("20 22\n")})
		if r.Outcome != Exited || string(r.Stdout) != "42\n" {
			t.Errorf("%s %d: %s %s", r.Outcome, r.ExitCode, r.Stdout, r.Stderr)
		}
	})
}

// A program of the work folder that does not execute is the payload's failure, a missing tool the sandbox's.
func TestNoExec(t *testing.T) {
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "junk", []byte{1, 2, 3}, 0o755)
		if r := mustRun(t, b, Command{Args: []string{"./junk"}}); r.Outcome != Exited || r.ExitCode != 126 {
			t.Errorf("junk: %+v", r)
		}
		if r := mustRun(t, b, Command{Args: []string{"/box/none"}}); r.Outcome != Exited || r.ExitCode != 127 {
			t.Errorf("missing: %+v", r)
		}
		if _, err := b.Run(t.Context(), Command{Args: []string{"/usr/bin/no-such-compiler"}}); err == nil || !strings.Contains(err.Error(), "no-such-compiler") {
			t.Errorf("missing tool: %v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "p", bin, 0o755)
		cause := errors.New("lease lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := b.Run(ctx, Command{Args: []string{"/bin/sh", "-c", "echo started; exec ./p sleep"}, Stdout: writerFunc(func(p []byte) (int, error) {
			cancel(cause)
			return len(p), nil
		})})
		if !errors.Is(err, cause) {
			t.Errorf("%v, want the cause of the cancellation", err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A program and its interactor are two boxes that talk through pipes.
func TestInteractive(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		one, two := newBox(t, s), newBox(t, s)
		put(t, one, "p", bin, 0o755)
		put(t, two, "main.py", []byte("print('ping', flush=True)\nassert input() == 'ping'\n"), 0o644)
		toOne, fromTwo, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		toTwo, fromOne, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			defer fromOne.Close()
			r, err := one.Run(t.Context(), Command{Args: []string{"/bin/sed", "-u", "p;q"}, Stdin: toOne, Stdout: fromOne})
			if err != nil || r.Outcome != Exited {
				t.Errorf("one: %+v %v", r, err)
			}
		})
		wg.Go(func() {
			defer fromTwo.Close()
			r, err := two.Run(t.Context(), Command{Args: []string{"/usr/bin/python3", "main.py"}, Stdin: toTwo, Stdout: fromTwo})
			if err != nil || r.Outcome != Exited || r.ExitCode != 0 {
				t.Errorf("two: %+v %s %v", r, r.Stderr, err)
			}
		})
		wg.Wait()
		toOne.Close()
		toTwo.Close()
	})
}

// Boxes run side by side; none holds another's pipes open.
func TestConcurrent(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		var wg sync.WaitGroup
		for range 8 {
			b := newBox(t, s)
			put(t, b, "p", bin, 0o755)
			wg.Go(func() {
				for range 5 {
					r, err := b.Run(t.Context(), Command{Args: []string{"./p", "sum"}, Stdin: io.MultiReader(strings.NewReader("1 "), strings.NewReader("2"))})
					if err != nil || r.Outcome != Exited || string(r.Stdout) != "3\n" {
						t.Errorf("%+v %v", r, err)
					}
				}
			})
		}
		wg.Wait()
	})
}
