package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lastword-go/lastword/app/internal/api"
)

// The README's path: a program goes in and its verdict comes out; then it is judged again.
func TestSubmitShowRejudge(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine.name, func(t *testing.T) {
			s := startServer(t, engine.db(t), t.TempDir())
			on := []string{"--server", s.url}
			out := must(t, append(on, "judge", "submit", "sum", repository("problems/sum/submissions/accepted/sum.cpp"), "--wait")...)
			if !strings.HasPrefix(out, "AC ") {
				t.Fatalf("submit --wait printed %q", out)
			}
			var submission api.Submission
			if err := json.Unmarshal([]byte(must(t, append(on, "judge", "show", "1", "--json")...)), &submission); err != nil {
				t.Fatal(err)
			}
			if submission.Generation != 1 || submission.Verdict == nil || submission.Verdict.Verdict != "AC" || len(submission.Verdicts[0].Tests) != 12 || len(submission.Attempts) != 1 {
				t.Errorf("show --json: %+v", submission)
			}
			out = must(t, append(on, "judge", "rejudge", "1", "--generation", "1", "--reason", "to see it", "--wait")...)
			if !strings.HasPrefix(out, "AC ") {
				t.Errorf("rejudge --wait printed %q", out)
			}
			out = must(t, append(on, "judge", "show", "1")...)
			for _, line := range []string{"generation 2", "rerun", "to see it", "attempt 2.1"} {
				if !strings.Contains(out, line) {
					t.Errorf("show does not say %q:\n%s", line, out)
				}
			}
			status, _, stderr := run(t, append(on, "judge", "rejudge", "1", "--generation", "1")...)
			if status != exitFail || !strings.Contains(stderr, "generation 2") {
				t.Errorf("a rejudge of a generation that has moved on: exit status %d, %s", status, stderr)
			}
			status, _, stderr = run(t, append(on, "judge", "submit", "sum", repository("problems/sum/submissions/wrong_answer/float.py"), "--expect", "AC")...)
			if status != exitFail || !strings.Contains(stderr, "AC was expected and WA was given") {
				t.Errorf("--expect AC for a wrong answer: exit status %d, %s", status, stderr)
			}
			if out := must(t, append(on, "judge", "ls")...); strings.Count(out, "\n") != 3 {
				t.Errorf("ls printed\n%s", out)
			}
			s.stop()
		})
	}
}

// Whatever comes in: a verdict, or one line that names the thing and the mend. The server goes on, and nothing is left.
func TestHostileInput(t *testing.T) {
	temp := t.TempDir()
	if err := os.Chmod(temp, 0o711); err != nil { // without cgroups the payload's user has to pass through
		t.Fatal(err)
	}
	s := startServer(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), temp)
	for _, test := range []struct{ name, file, source, verdict string }{
		{"fork bomb", "a.c", "#include <unistd.h>\nint main(void) { for (;;) fork(); }", "TLE"},
		{"1 GB of output", "a.c", "#include <stdio.h>\nint main(void) { static char b[1 << 20]; for (int i = 0; i < 1024; i++) fwrite(b, 1, sizeof b, stdout); }", "OLE"},
		{"1 GB of newlines as errors", "a.py", "import sys\nwhile True: sys.stderr.write('\\n' * 65536)", "OLE"},
		{"endless compile", "a.c", "#include \"/dev/zero\"\nint main(void) { return 0; }", "CE"},
		{"endless include", "a.cpp", "#include __FILE__\nint main() {}", "CE"},
		{"reads /etc/shadow at compile time", "a.c", "#include \"/etc/shadow\"\nint main(void) { return 0; }", "CE"},
		{"output linked to /etc/shadow", "a.c", "#include <unistd.h>\nint main(void) { return symlink(\"/etc/shadow\", \"program\") && symlink(\"/etc/shadow\", \"/tmp/out\"); }", "WA"},
		{"any bytes in the source", "a.py", "\x00\xff\xfe\x80", "CE"},
		{"any bytes in the output", "a.py", "import sys\nsys.stdout.buffer.write(bytes(range(256)))", "WA"},
		{"daemon that stays", "a.py", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint(3)", "WA"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := run(t, "--server", s.url, "judge", "submit", "sum", writeFile(t, test.file, test.source), "--expect", test.verdict)
			if status != exitDone {
				t.Errorf("exit status %d: %s%s", status, stdout, stderr)
			}
			if strings.Contains(stdout, "root:") {
				t.Errorf("the host's /etc/shadow came out: %s", stdout)
			}
		})
	}
	for _, test := range []struct{ name, problem, file, source, says string }{
		{"unknown problem", "nonsense", "a.py", "print(1)", "known are average, sum"},
		{"unknown language", "sum", "a.cobol", "DISPLAY 1.", "known are c, cpp, python"},
		{"empty file", "sum", "a.py", "", "the source is empty"},
		{"source over the limit", "sum", "a.py", "#" + strings.Repeat("x", 200<<10), "at most"},
		{"source far over the limit", "sum", "a.py", "#" + strings.Repeat("x", 3<<20), "send less"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, _, stderr := run(t, "--server", s.url, "judge", "submit", test.problem, writeFile(t, test.file, test.source))
			if status != exitFail || !strings.Contains(stderr, test.says) || strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
				t.Errorf("exit status %d, %q; want one line that names %q", status, stderr, test.says)
			}
		})
	}
	must(t, "--server", s.url, "judge", "submit", "sum", repository("problems/sum/submissions/accepted/sum.py"), "--expect", "AC")
	s.stop()
	nothingLeft(t, temp, s)
}

// What was accepted is judged, although the server is killed in the middle and started again.
func TestKillAndRestart(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine.name, func(t *testing.T) {
			db, temp := engine.db(t), t.TempDir()
			if err := os.Chmod(temp, 0o711); err != nil {
				t.Fatal(err)
			}
			s := startServer(t, db, temp)
			servers := []*serverProcess{s}
			restart := func() {
				s.kill()
				s = startServer(t, db, temp)
				servers = append(servers, s)
			}
			const accepted = 12
			for i := range accepted {
				must(t, "--server", s.url, "judge", "submit", "sum", repository("problems/sum/submissions/accepted/sum.cpp"))
				if i == accepted/2 {
					restart()
				}
			}
			restart()
			client := &api.Client{Base: s.url}
			for id := int64(1); id <= accepted; id++ {
				submission, err := client.Wait(t.Context(), id, 0)
				for err == nil && submission.Verdict == nil { // its worker was killed: a later generation has begun
					submission, err = client.Wait(t.Context(), id, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
				if submission.Verdict.Verdict != "AC" {
					t.Errorf("submission %d: %s", id, submission.Verdict.Verdict)
				}
			}
			s.stop()
			nothingLeft(t, temp, servers...)
			var report struct{ Orphans int64 }
			if err := json.Unmarshal([]byte(must(t, "--db", db, "reconcile", "run", "--json")), &report); err != nil || report.Orphans != 0 {
				t.Errorf("the reconciler found %d orphans (%v)", report.Orphans, err)
			}
		})
	}
}

func TestRefusesForeignHostsAndOrigins(t *testing.T) {
	s := startServer(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), t.TempDir())
	for name, change := range map[string]func(*http.Request){
		"host": func(r *http.Request) { r.Host = "evil.example" },
		"origin": func(r *http.Request) {
			r.Header.Set("Origin", "http://evil.example")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/submissions", strings.NewReader(`{"problem":"sum","filename":"a.py","source":"print(1)"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		change(request)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode < 400 || response.StatusCode >= 500 {
			t.Errorf("a foreign %s got status %d", name, response.StatusCode)
		}
	}
}

// nothingLeft looks for what the sandboxes of these servers may leave behind: files, control groups, and processes.
func nothingLeft(t *testing.T, temp string, servers ...*serverProcess) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	for _, s := range servers {
		// A group's name has its owner's process id in it. Other tests run sandboxes of their own meanwhile.
		for _, pattern := range []string{"/sys/fs/cgroup/lastword-sandbox/*-%d-*", "/sys/fs/cgroup/*/lastword-sandbox/*-%d-*"} {
			if left, _ := filepath.Glob(fmt.Sprintf(pattern, s.cmd.Process.Pid)); len(left) > 0 {
				t.Errorf("control groups are left: %v", left)
			}
		}
	}
	for _, pid := range processesBelow(temp) {
		t.Errorf("process %d still works in %s", pid, temp)
	}
}

func processesBelow(dir string) []int {
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}
