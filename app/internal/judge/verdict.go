// Package judge is an online judge on lastword's public API: submissions are tasks, a verdict is written under its attempt's guard and
// belongs to one generation, and a rejudge opens the next.
package judge

import (
	"fmt"
	"time"

	"github.com/lastword-go/lastword/app/internal/judge/problem"
)

// Verdict is the outcome of a judged submission. There are no others: what is not one of these is refused before SQL.
type Verdict = problem.Verdict

// The verdicts.
const (
	Accepted            = problem.Accepted
	WrongAnswer         = problem.WrongAnswer
	TimeLimitExceeded   = problem.TimeLimitExceeded
	MemoryLimitExceeded = problem.MemoryLimitExceeded
	OutputLimitExceeded = problem.OutputLimitExceeded
	RunTimeError        = problem.RunTimeError
	CompileError        = problem.CompileError
	// JudgeError is the judge's own failure; it says nothing about the submission.
	JudgeError Verdict = "JE"
)

// ParseVerdict reads a verdict's short name.
func ParseVerdict(name string) (Verdict, error) {
	switch v := Verdict(name); v {
	case Accepted, WrongAnswer, TimeLimitExceeded, MemoryLimitExceeded, OutputLimitExceeded, RunTimeError, CompileError, JudgeError:
		return v, nil
	}
	return "", fmt.Errorf("%q is no verdict: AC, WA, TLE, MLE, OLE, RTE, CE and JE are", name)
}

// Result is one judging. The tests are judged in the package's order, and the first that is not accepted decides and ends the judging.
type Result struct {
	Verdict Verdict
	Time    time.Duration // CPU time of the slowest test that ran
	Memory  int64         // bytes, of the test with the highest peak
	Test    string        // the deciding test; "" for AC, CE and JE
	Message string        // for people: the compiler's words, or where the output differs
	Tests   []TestResult
	// ProblemHash names the version of the package that was judged on.
	ProblemHash string
}

// TestResult is one run on one test.
type TestResult struct {
	Name    string
	Verdict Verdict
	Time    time.Duration
	Memory  int64
	Message string
}
