package judge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/lastword-go/lastword/app/internal/judge/checker"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/sandbox"
)

const (
	maxSource = 128 << 10 // bytes; a package may ask for less

	// The wall clock is lax: on a busy machine a second of CPU time can take several.
	wallFactor = 3
	wallExtra  = 2 * time.Second

	compilerOutput    = 64 << 10
	compilerProcesses = 64
	programProcesses  = 16
	errorOutput       = 64 << 10
	compiledSize      = 64 << 20
)

// Judge compiles and runs programs on problems. It is safe for use by several goroutines.
type Judge struct {
	problems  map[string]*problem.Package
	languages map[string]LanguageStatus
	box       *sandbox.Sandbox
}

// New returns a Judge for the problems and languages given.
func New(problems []*problem.Package, languages []LanguageStatus, box *sandbox.Sandbox) *Judge {
	j := &Judge{problems: map[string]*problem.Package{}, languages: map[string]LanguageStatus{}, box: box}
	for _, p := range problems {
		j.problems[p.ID] = p
	}
	for _, l := range languages {
		j.languages[l.Name] = l
	}
	return j
}

// InputError is a fault of the sender's: one line that names the thing and the mend.
type InputError struct{ Text string }

func (e *InputError) Error() string { return e.Text }

func inputErrorf(format string, args ...any) error {
	return &InputError{Text: fmt.Sprintf(format, args...)}
}

// Check refuses, with an [InputError], what cannot be judged.
func (j *Judge) Check(sub Submission) error {
	p, ok := j.problems[sub.Problem]
	if !ok {
		return inputErrorf("there is no problem %q: %s", clean(sub.Problem, 80), oneOf(j.problems))
	}
	language, ok := j.languages[sub.Language]
	switch limit := min(maxSource, p.Limits.Code); {
	case sub.Language == "":
		return inputErrorf("the language of %q is not known by its ending: name one: %s", clean(sub.Filename, 80), oneOf(j.languages))
	case !ok:
		return inputErrorf("there is no language %q: %s", clean(sub.Language, 80), oneOf(j.languages))
	case language.Missing != "":
		return &InputError{Text: language.Missing}
	case len(sub.Source) == 0:
		return inputErrorf("the source is empty: send a program")
	case int64(len(sub.Source)) > limit:
		return inputErrorf("the source has %d bytes: at most %d are allowed", len(sub.Source), limit)
	}
	return nil
}

func oneOf[V any](known map[string]V) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(names) == 0 {
		return "none is loaded"
	}
	return "known are " + strings.Join(names, ", ")
}

// Judge compiles the submission and runs it on the problem's tests until one is not accepted. progress is told each step in a few
// words; its error ends the judging. An error of Judge is the judge's own failure, or the context's end; it is no verdict.
func (j *Judge) Judge(ctx context.Context, sub Submission, progress func(step string) error) (Result, error) {
	if err := j.Check(sub); err != nil {
		return Result{}, err
	}
	p, language := j.problems[sub.Problem], j.languages[sub.Language]
	check, err := checker.Parse(p.ValidatorFlags)
	if err != nil {
		return Result{}, fmt.Errorf("problem %s: %w", p.ID, err)
	}
	box, err := j.box.NewBox()
	if err != nil {
		return Result{}, err
	}
	defer box.Close()
	result := Result{Verdict: Accepted, ProblemHash: p.Hash}
	if err := progress("compiling"); err != nil {
		return Result{}, err
	}
	failure, err := compile(ctx, box, p, language, sub.Source)
	if err != nil {
		return Result{}, err
	}
	if failure != "" {
		result.Verdict, result.Message = CompileError, failure
		return result, nil
	}
	for i, test := range p.Tests {
		if err := progress(fmt.Sprintf("test %d of %d", i+1, len(p.Tests))); err != nil {
			return Result{}, err
		}
		run, err := runTest(ctx, box, p, language, test, check)
		if err != nil {
			return Result{}, fmt.Errorf("problem %s, test %s: %w", p.ID, test.Name, err)
		}
		result.Tests = append(result.Tests, run)
		result.Time, result.Memory = max(result.Time, run.Time), max(result.Memory, run.Memory)
		if run.Verdict != Accepted {
			result.Verdict, result.Test, result.Message = run.Verdict, run.Name, run.Message
			return result, nil
		}
	}
	return result, nil
}

// compile returns the compiler's words when the program does not compile, and an error when the sandbox failed.
func compile(ctx context.Context, box *sandbox.Box, p *problem.Package, language LanguageStatus, source []byte) (failure string, _ error) {
	if err := box.Put(language.SourceName, source, 0o644); err != nil {
		return "", err
	}
	run, err := box.Run(ctx, sandbox.Command{
		Args: language.Compile, WritableDir: true,
		Limits: sandbox.Limits{CPU: p.Limits.CompileTime, Wall: wall(p.Limits.CompileTime), Memory: p.Limits.CompileMemory, Processes: compilerProcesses,
			Output: compilerOutput, Stderr: compilerOutput, FileSize: compiledSize},
	})
	if err != nil {
		return "", fmt.Errorf("compile: %w", err)
	}
	words := clean(strings.TrimSpace(string(run.Stderr)+"\n"+string(run.Stdout)), maxMessage)
	switch {
	case run.Outcome == sandbox.Exited && run.ExitCode == 0:
		return "", nil
	case run.Outcome == sandbox.Exited && words != "":
		return words, nil
	case run.Outcome == sandbox.Exited:
		return fmt.Sprintf("the compiler ended with status %d", run.ExitCode), nil
	}
	return strings.TrimSpace(fmt.Sprintf("the compiler was stopped: %s\n%s", run.Outcome, words)), nil
}

func wall(cpu time.Duration) time.Duration { return wallFactor*cpu + wallExtra }

func runTest(ctx context.Context, box *sandbox.Box, p *problem.Package, language LanguageStatus, test problem.Test, check *checker.Options) (TestResult, error) {
	input, err := test.Input()
	if err != nil {
		return TestResult{}, err
	}
	run, err := box.Run(ctx, sandbox.Command{
		Args: language.Run, Stdin: bytes.NewReader(input),
		Limits: sandbox.Limits{CPU: p.Limits.Time, Wall: wall(p.Limits.Time), Memory: p.Limits.Memory, Processes: programProcesses,
			Output: p.Limits.Output, Stderr: errorOutput, FileSize: p.Limits.Output},
	})
	if err != nil {
		return TestResult{}, err
	}
	result := TestResult{Name: test.Name, Time: run.CPU, Memory: run.Memory}
	result.Verdict, result.Message = outcome(run)
	if result.Verdict != Accepted {
		return result, nil
	}
	answer, err := test.Answer()
	if err != nil {
		return TestResult{}, err
	}
	if checked := check.Check(answer, run.Stdout); !checked.Accepted {
		result.Verdict, result.Message = WrongAnswer, checked.Message
	}
	return result, nil
}

// outcome turns how a run ended into a verdict, before its output is looked at.
func outcome(run sandbox.Result) (Verdict, string) {
	switch run.Outcome {
	case sandbox.CPULimit, sandbox.WallLimit:
		return TimeLimitExceeded, run.Outcome.String()
	case sandbox.MemoryLimit:
		return MemoryLimitExceeded, run.Outcome.String()
	case sandbox.OutputLimit:
		return OutputLimitExceeded, run.Outcome.String()
	case sandbox.Signaled:
		return RunTimeError, fmt.Sprintf("ended by signal %s", run.Signal)
	}
	if run.ExitCode != 0 {
		return RunTimeError, fmt.Sprintf("exit status %d\n%s", run.ExitCode, clean(string(run.Stderr), 1000))
	}
	return Accepted, ""
}

// IsInput reports whether an error is the sender's fault.
func IsInput(err error) bool {
	var input *InputError
	return errors.As(err, &input)
}
