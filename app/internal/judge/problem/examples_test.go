package problem

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword/app/internal/judge/checker"
)

const ownProblems = "../../../../problems"

// Our own packages must open without a warning.
func TestOwnProblems(t *testing.T) {
	packages, err := OpenAll(ownProblems)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 2 || packages[0].ID != "average" || packages[1].ID != "sum" {
		t.Fatalf("%d packages", len(packages))
	}
	for _, p := range packages {
		if len(p.Warnings) > 0 || p.License != "cc0" || p.Limits.Time != time.Second || !p.Limits.TimeStated || p.Limits.Output != 1<<20 {
			t.Errorf("%s: %q, %s, %+v", p.ID, p.Warnings, p.License, p.Limits)
		}
		if s, ok := p.Statement("en"); !ok {
			t.Errorf("%s: no statement %v", p.ID, s)
		}
	}
}

// The answers are checked against what the example submissions really print.
// Those that would exhaust time, memory or output need a sandbox and are left
// to the judge's own tests.
func TestOwnSubmissions(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles and runs programs")
	}
	packages, err := OpenAll(ownProblems)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		options, err := checker.Parse(p.ValidatorFlags)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Submissions {
			if s.Expects(TimeLimitExceeded) || s.Expects(MemoryLimitExceeded) || s.Expects(OutputLimitExceeded) {
				continue
			}
			t.Run(p.ID+"/"+s.Name, func(t *testing.T) {
				if got := verdict(t, p, s, options); !s.Expects(got) {
					t.Errorf("%s, want %s", got, s.Expected)
				}
			})
		}
	}
}

func verdict(t *testing.T, p *Package, s Submission, options *checker.Options) Verdict {
	build, run := commands(t, s)
	if err := exec.Command(build[0], build[1:]...).Run(); err != nil {
		return CompileError
	}
	for _, test := range p.Tests {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, err := test.OpenInput()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		answer, err := test.Answer()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, run[0], run[1:]...)
		cmd.Stdin, cmd.Stdout = in, &out
		if err := cmd.Run(); err != nil {
			return RunTimeError
		}
		if r := options.Check(answer, out.Bytes()); !r.Accepted {
			t.Logf("%s: %s", test.Name, r.Message)
			return WrongAnswer
		}
	}
	return Accepted
}

// commands gives how a program is built and run, or skips the test.
func commands(t *testing.T, s Submission) (build, run []string) {
	binary := filepath.Join(t.TempDir(), "program")
	tool := "python3"
	build = []string{tool, "-c", "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')", s.Path}
	run = []string{tool, s.Path}
	switch {
	case strings.HasSuffix(s.Name, ".cpp"):
		tool, run = "g++", []string{binary}
		build = []string{tool, "-O2", "-o", binary, s.Path}
	case strings.HasSuffix(s.Name, ".c"):
		tool, run = "gcc", []string{binary}
		build = []string{tool, "-O2", "-o", binary, s.Path}
	}
	if _, err := exec.LookPath(tool); err != nil {
		t.Skip(err)
	}
	return build, run
}
