//go:build linux

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The payload may put anything in the place of its output; none of it may be read in its stead, nor block the reader.
func TestReplacedOutput(t *testing.T) {
	bin := build(t, hostile)
	forModes(t, func(t *testing.T, s *Sandbox) {
		for _, tt := range []struct {
			do, arg string
			want    error
		}{
			{"swap", "/etc/shadow", ErrNotFile},
			{"swap", "../../../../../../etc/passwd", ErrNotFile},
			{"swap", "p", ErrNotFile},
			{"swap", "/dev/zero", ErrNotFile},
			{"fifo", "", ErrNotFile},
			{"dir", "", ErrNotFile},
			{"large", "", ErrTooLarge},
			{"exit3", "", os.ErrNotExist},
		} {
			b := newBox(t, s)
			put(t, b, "p", bin, 0o755)
			mustRun(t, b, Command{Args: []string{"./p", tt.do, tt.arg}, WritableDir: true})
			if data, err := b.Read("out", 1000); !errors.Is(err, tt.want) {
				t.Errorf("%s %s: read %d bytes, %v; want %v", tt.do, tt.arg, len(data), err, tt.want)
			}
			put(t, b, "out", []byte("ours"), 0o600)
			if data, err := b.Read("out", 1000); err != nil || string(data) != "ours" {
				t.Errorf("%s %s: put afterwards: %q %v", tt.do, tt.arg, data, err)
			}
		}
		b := newBox(t, s)
		mustRun(t, b, Command{Args: []string{"/bin/ln", "-s", "/etc", "e"}, WritableDir: true})
		if _, err := b.Read("e/passwd", 1<<20); err == nil {
			t.Error("read through a linked folder")
		}
		if err := b.Put("e/x", nil, 0o600); err == nil {
			t.Error("put through a linked folder")
		}
		if _, err := b.Read("../../x", 1); err == nil {
			t.Error("read above the folder")
		}
	})
}

func TestWorkFolder(t *testing.T) {
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "lib/deep/a.txt", []byte("a"), 0o644)
		r := mustRun(t, b, Command{Args: []string{"/bin/sh", "-c", "cat lib/deep/a.txt; echo b > lib/b.txt"}})
		if string(r.Stdout) != "a" || r.ExitCode == 0 {
			t.Errorf("read-only: %+v %s", r, r.Stderr)
		}
		r = mustRun(t, b, Command{Args: []string{"/bin/sh", "-c", "echo b > lib/b.txt"}, WritableDir: true})
		if data, err := b.Read("lib/b.txt", 10); err != nil || string(data) != "b\n" || r.ExitCode != 0 {
			t.Errorf("writable: %q %v %+v", data, err, r)
		}
	})
}

func TestReadOnlyPaths(t *testing.T) {
	dir := "/opt/sandbox-test"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("cannot make %s: %v", dir, err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("tool"), 0o644); err != nil {
		t.Fatal(err)
	}
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		script := "cat " + dir + "/f; echo x > " + dir + "/f"
		r := mustRun(t, b, Command{Args: []string{"/bin/sh", "-c", script}, ReadOnly: []string{dir}})
		if string(r.Stdout) != "tool" || r.ExitCode == 0 {
			t.Errorf("%+v %s", r, r.Stderr)
		}
		for _, p := range []string{"/", "/proc", "/tmp/x", "opt", "/opt/../etc", "/box/x", "/etc"} {
			if _, err := b.Run(t.Context(), Command{Args: []string{"/bin/true"}, ReadOnly: []string{p}}); err == nil {
				t.Errorf("%s is taken", p)
			}
		}
	})
}

// Whatever mess a payload leaves, Close removes it.
func TestCloseRemovesMess(t *testing.T) {
	s := newSandbox(t, ModeUserns)
	b := newBox(t, s)
	put(t, b, "p", build(t, hostile), 0o755)
	r := mustRun(t, b, Command{Args: []string{"./p", "mess"}, WritableDir: true, Limits: Limits{CPU: time.Minute}})
	if r.Outcome != Exited || r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("folder stays")
	}
}

func TestBadCommands(t *testing.T) {
	s := newSandbox(t, ModeUserns)
	b := newBox(t, s)
	for _, c := range []Command{
		{},
		{Args: []string{""}},
		{Args: []string{"true"}},
		{Args: []string{"/bin/true"}, Limits: Limits{Memory: -1}},
	} {
		if _, err := b.Run(t.Context(), c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestOwnerNames(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := parseOwner(me.String() + "-rest"); !ok || got != me || got.dead(me) {
		t.Errorf("%v %v", got, ok)
	}
	old := me
	old.start--
	if !old.dead(me) {
		t.Error("same number, earlier start: dead")
	}
	old.ns++
	if old.dead(me) {
		t.Error("of another namespace nothing is known")
	}
	for _, bad := range []string{"", "1-2-3", "a-b-c-d", "1-2-3x-", " 1-2-3-", "01-2-3-x"} {
		if o, ok := parseOwner(bad); ok {
			t.Errorf("%q is read as %v", bad, o)
		}
	}
}

func TestModeNone(t *testing.T) {
	_, err := New(t.Context(), &Options{Mode: ModeNone})
	if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "use Linux") {
		t.Fatalf("%v, want a refusal with its mend", err)
	}
	s, err := New(t.Context(), &Options{Mode: ModeNone, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := newBox(t, s)
	put(t, b, "p", build(t, hostile), 0o755)
	for _, tt := range []struct {
		do   string
		want Outcome
		code int
	}{{"sum", Exited, 0}, {"exit3", Exited, 3}, {"loop", CPULimit, 0}, {"sleep", WallLimit, 0}, {"flood", OutputLimit, 0}, {"newlines", OutputLimit, 0}, {"abort", Signaled, 0}} {
		l := tight()
		if tt.want == WallLimit {
			l.Wall = 1e8
		}
		r := mustRun(t, b, Command{Args: []string{"./p", tt.do}, Stdin: strings.NewReader("1 2\n"), Limits: l})
		if r.Outcome != tt.want || r.ExitCode != tt.code {
			t.Errorf("%s: %+v", tt.do, r)
		}
	}
	r := mustRun(t, b, Command{Args: []string{"/bin/sh", "-c", "sleep 100 & sleep 100 & exit 2"}})
	if r.ExitCode != 2 {
		t.Errorf("children left behind: %+v", r)
	}
	if r := mustRun(t, b, Command{Args: []string{"./none"}}); r.ExitCode != 127 {
		t.Errorf("missing program: %+v", r)
	}
}
