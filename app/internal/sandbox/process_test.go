//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// play is what the test binary does when a test starts it as another process.
func play(role string) int {
	ctx := context.Background()
	var err error
	switch role {
	case "hold":
		err = hold(ctx)
	case "nobody":
		err = asNobody(ctx)
	default:
		err = fmt.Errorf("role %q", role)
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// hold runs a program that does not end, and prints where once it has started. Its input is file 3.
func hold(ctx context.Context) error {
	s, err := New(ctx, &Options{Mode: Mode(os.Getenv("SANDBOX_TEST_MODE")), Dir: os.Getenv("SANDBOX_TEST_DIR")})
	if err != nil {
		return err
	}
	b, err := s.NewBox()
	if err != nil {
		return err
	}
	started := writerFunc(func(p []byte) (int, error) {
		fmt.Println(s.dir)
		return len(p), nil
	})
	// A child in a session of its own, too: it must not outlive its box.
	script := "/usr/bin/setsid /bin/sleep 1000 & echo started; exec /bin/sleep 1000"
	_, err = b.Run(ctx, Command{Args: []string{"/bin/sh", "-c", script}, Stdin: os.NewFile(3, "leash"), Stdout: started, Limits: Limits{Wall: 1e12, CPU: 1e12}})
	return fmt.Errorf("ended: %w", err)
}

func TestParentKilled(t *testing.T) {
	for _, m := range []Mode{ModeCgroup, ModeUserns} {
		t.Run(string(m), func(t *testing.T) { parentKilled(t, m) })
	}
}

func parentKilled(t *testing.T, m Mode) {
	newSandbox(t, m) // skips if the mode does not work here
	dir := t.TempDir()
	// The path to it must be open to the box's user.
	for d := dir; d != os.TempDir(); d = d[:strings.LastIndexByte(d, '/')] {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Every process of the box has the write end as its standard input: it reads as ended when all are dead.
	leash, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer leash.Close()
	cmd, left := startHolder(t, m, dir, held)
	held.Close()
	gone := &Sandbox{name: strings.TrimPrefix(left[len(dir)+1:], folderPrefix), dir: left}
	open := func() {
		t.Helper()
		s, err := New(t.Context(), &Options{Mode: m, Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}

	open() // while the other process lives
	if _, err := os.Stat(left); err != nil {
		t.Error("the sweep took a live process's folder")
	}
	if n := groupsOf(t, gone); m == ModeCgroup && n == 0 {
		t.Error("the sweep took a live process's cgroups")
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(leash); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	open()
	if _, err := os.Stat(left); err == nil {
		t.Error("the killed process's folder stays")
	}
	if n := groupsOf(t, gone); n > 0 {
		t.Errorf("%d cgroup folders of the killed process stay", n)
	}
}

// startHolder starts a process that runs a program in a box, and returns it with its sandbox's folder.
func startHolder(t *testing.T, m Mode, dir string, stdin *os.File) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_ROLE=hold", "SANDBOX_TEST_MODE="+string(m), "SANDBOX_TEST_DIR="+dir)
	cmd.ExtraFiles = []*os.File{stdin}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	left := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(left, dir) {
		t.Fatalf("helper: %q %v", line, err)
	}
	return cmd, left
}

func TestUnprivilegedUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the other tests run unprivileged")
	}
	newSandbox(t, ModeUserns)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_ROLE=nobody")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// asNobody checks what differs for a user without any privilege.
func asNobody(ctx context.Context) error {
	r := Detect(ctx)
	if r.Mode != ModeUserns || len(r.Reasons) != 1 || !strings.Contains(r.String(), "root") {
		return fmt.Errorf("detected: %s", r)
	}
	s, err := New(ctx, &Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := s.NewBox()
	if err != nil {
		return err
	}
	if err := b.Put("main.cc", []byte("#include <cstdio>\nint main() { puts(\"hi\"); }"), 0o644); err != nil {
		return err
	}
	res, err := b.Run(ctx, Command{Args: []string{"/usr/bin/g++", "-o", "main", "main.cc"}, WritableDir: true})
	if err != nil || res.Outcome != Exited || res.ExitCode != 0 {
		return fmt.Errorf("compile: %v %+v %s", err, res, res.Stderr)
	}
	res, err = b.Run(ctx, Command{Args: []string{"./main"}})
	if err != nil || string(res.Stdout) != "hi\n" {
		return fmt.Errorf("run: %v %+v", err, res)
	}
	hog := "x = []\nwhile True: x.append(bytearray(1 << 20))"
	res, err = b.Run(ctx, Command{Args: []string{"/usr/bin/python3", "-c", hog}, Limits: Limits{Memory: 64 << 20}})
	if err != nil || res.Outcome != MemoryLimit {
		return fmt.Errorf("hog: %v %+v", err, res)
	}
	script := "mkdir -p a/b && chmod 0 a"
	if res, err = b.Run(ctx, Command{Args: []string{"/bin/sh", "-c", script}, WritableDir: true}); err != nil || res.ExitCode != 0 {
		return fmt.Errorf("locked folder: %v %+v", err, res)
	}
	if err := s.Close(); err != nil {
		return err
	}
	if _, err := os.Stat(s.dir); err == nil {
		return fmt.Errorf("%s left", s.dir)
	}
	return nil
}

func TestDetect(t *testing.T) {
	r := Detect(t.Context())
	t.Log(r)
	if r.Mode == ModeCgroup && len(r.Reasons) != 0 || r.Mode == ModeUserns && len(r.Reasons) != 1 {
		t.Errorf("%+v", r)
	}
}
