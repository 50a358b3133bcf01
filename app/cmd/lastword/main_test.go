package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword-go/lastword/app/internal/sandbox"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
)

// asLastword makes this test binary behave as the program itself: the tests start it as a real process.
const asLastword = "LASTWORD_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	sandbox.Main()
	if os.Getenv(asLastword) != "" {
		main()
	}
	os.Exit(m.Run())
}

// engine is one database that the program is tested on.
type engine struct {
	name string
	db   func(t *testing.T) string
}

func engines(t *testing.T) []engine {
	t.Helper()
	return []engine{
		{"sqlite", func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "lastword.db") }},
		{"postgres", postgresDatabase},
	}
}

func postgresDatabase(t *testing.T) string {
	t.Helper()
	server, err := testserver.StartPostgres(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	url, drop, err := server.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	return url
}

// repository returns the path of a file in the repository.
func repository(path string) string { return filepath.Join("..", "..", "..", path) }

// serverProcess is a real process that runs "lastword serve".
type serverProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	temp string // its temporary files
}

func startServer(t *testing.T, db, temp string, args ...string) *serverProcess {
	t.Helper()
	args = append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--problems", repository("problems"), "--lease", "2s"}, args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asLastword+"=1", "TMPDIR="+temp)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &serverProcess{t: t, cmd: cmd, temp: temp}
	t.Cleanup(s.kill)
	urls := make(chan string, 1)
	go func() {
		scanner := bufio.NewScanner(stderr)
		for scanner.Scan() {
			if _, after, found := strings.Cut(scanner.Text(), "http://"); found && strings.HasPrefix(scanner.Text(), "lastword ") {
				urls <- "http://" + strings.Fields(after)[0]
			}
			t.Log("server:", scanner.Text())
		}
		close(urls)
	}()
	select {
	case url, ok := <-urls:
		if !ok {
			t.Fatal("the server ended at once")
		}
		s.url = url
	case <-time.After(30 * time.Second):
		t.Fatal("the server did not say where it listens")
	}
	return s
}

// kill is kill -9: nothing of the server gets to tidy up.
func (s *serverProcess) kill() {
	_ = s.cmd.Process.Kill()
	_, _ = s.cmd.Process.Wait()
}

// stop is a graceful end, which must succeed.
func (s *serverProcess) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		state, err := s.cmd.Process.Wait()
		if err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			s.t.Errorf("the server ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		s.t.Error("the server did not end within 30 s of SIGTERM")
	}
}

// run runs a command in this process and returns its exit status and what it printed.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	status = p.run(ctx, args)
	return status, out.String(), errs.String()
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := run(t, args...)
	if status != exitDone {
		t.Fatalf("lastword %s: exit status %d\n%s%s", strings.Join(args, " "), status, stdout, stderr)
	}
	return stdout
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{}, exitDone, "Usage: lastword"},
		{[]string{"--help"}, exitDone, "serve"},
		{[]string{"version"}, exitDone, "lastword"},
		{[]string{"nonsense"}, exitUsage, "nonsense"},
		{[]string{"serve", "--nonsense"}, exitUsage, "--nonsense"},
		{[]string{"serve", "--listen", "0.0.0.0:80"}, exitUsage, "only a loopback address"},
		{[]string{"serve", "--listen", "nonsense"}, exitUsage, "--listen nonsense"},
		{[]string{"serve", "--db", "oracle:x", "--listen", "127.0.0.1:0"}, exitFail, "use sqlite:PATH or postgres://"},
		{[]string{"serve", "--db", "sqlite:" + filepath.Join(t.TempDir(), "no", "such", "folder.db"), "--listen", "127.0.0.1:0"}, exitFail, "folder.db"},
		{[]string{"serve", "--db", "sqlite:" + filepath.Join(t.TempDir(), "x.db"), "--problems", t.TempDir(), "--listen", "127.0.0.1:0"}, exitFail, "--problems DIR"},
		{[]string{"judge", "ls", "--server", "http://127.0.0.1:1"}, exitFail, "lastword serve"},
		{[]string{"judge", "submit", "sum", "/no/such/file.cpp"}, exitFail, "/no/such/file.cpp"},
		{[]string{"judge", "submit", "sum", "x.cpp", "--expect", "OK"}, exitUsage, "AC, WA"},
		{[]string{"judge", "verify", repository("problems/README.md")}, exitFail, "README.md"},
		{[]string{"demo", "--db", "postgres://127.0.0.1:1/x"}, exitFail, "127.0.0.1:1"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			status, stdout, stderr := run(t, test.args...)
			if status != test.status {
				t.Errorf("exit status %d, want %d", status, test.status)
			}
			if !strings.Contains(stdout+stderr, test.says) {
				t.Errorf("says %q, want it to name %q", stdout+stderr, test.says)
			}
			verifies := len(test.args) > 1 && test.args[1] == "verify" // which reports every finding, each on a line
			if test.status == exitFail && !verifies && strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
				t.Errorf("an error of more than one line: %q", stderr)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	packages, err := filepath.Glob(repository("problems/*")) // with the README.md that stands beside them
	if err != nil {
		t.Fatal(err)
	}
	out := must(t, append([]string{"judge", "verify"}, packages...)...)
	if !strings.Contains(out, "expected (rows) and given (columns)") || strings.Contains(out, "NOT EXPECTED") {
		t.Errorf("verify printed\n%s", out)
	}
}

// A package whose example is in the wrong folder is found out.
func TestVerifyFindsAWrongExpectation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wrong")
	if err := os.CopyFS(dir, os.DirFS(repository("problems/sum"))); err != nil {
		t.Fatal(err)
	}
	examples := filepath.Join(dir, "submissions")
	if err := os.RemoveAll(examples); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(examples, "accepted"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(examples, "accepted", "zero.py"), []byte("print(0)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, "judge", "verify", dir)
	if status != exitFail || !strings.Contains(stdout, "NOT EXPECTED") || !strings.Contains(stderr, "1 of 1") {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}
}

func TestDemo(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "demo", "--db", engine.db(t))
			cmd.Env = append(os.Environ(), asLastword+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("the demo ended with %v\n%s", err, out)
			}
			for _, line := range []string{"the stale write LANDED", "the stale verdict LANDED", "A was refused", "the scoreboard still says AC, written by B"} {
				if !strings.Contains(string(out), line) {
					t.Errorf("the demo did not say %q\n%s", line, out)
				}
			}
		})
	}
}
