package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/lastword-go/lastword/app/internal/api"
	"github.com/lastword-go/lastword/app/internal/judge"
)

type judgeCommands struct {
	Submit  submitCommand  `cmd:"" help:"Send a program to be judged."`
	Show    showCommand    `cmd:"" help:"Show one submission: verdicts, tests, generations, attempts, refusals."`
	Ls      lsCommand      `cmd:"" help:"List submissions, the newest first."`
	Rejudge rejudgeCommand `cmd:"" help:"Judge a submission again: opens its next generation and fences a running judging."`
	Verify  verifyCommand  `cmd:"" help:"Judge the example submissions of problem packages, without a server, and compare with what they expect."`
}

type submitCommand struct {
	Problem  string `arg:"" help:"The problem's id."`
	File     string `arg:"" help:"The source file; - reads standard input."`
	Language string `placeholder:"NAME" help:"Language; the file's ending decides if it is not given."`
	Wait     bool   `help:"Wait for the verdict."`
	Expect   string `placeholder:"VERDICT" help:"Wait, and exit with status 1 if the verdict is another."`
}

// Run submits, and waits where it is asked to.
func (s *submitCommand) Run(ctx context.Context, p *program, c *commands) error {
	if s.Expect != "" {
		if _, err := judge.ParseVerdict(s.Expect); err != nil {
			return &exitError{status: exitUsage, err: fmt.Errorf("--expect: %w", err)}
		}
	}
	source, err := readSource(s.File, p.stdin)
	if err != nil {
		return err
	}
	request := api.SubmitRequest{Problem: s.Problem, Language: s.Language, Filename: filepath.Base(s.File)}
	if utf8.Valid(source) {
		request.Source = string(source)
	} else {
		request.SourceBase64 = source
	}
	client := &api.Client{Base: c.Server}
	submitted, err := client.Submit(ctx, request)
	if err != nil {
		return err
	}
	if !s.Wait && s.Expect == "" {
		if c.JSON {
			return printJSON(p.stdout, submitted)
		}
		fmt.Fprintf(p.stdout, "submission %d, generation %d\n", submitted.ID, submitted.Generation)
		return nil
	}
	return s.wait(ctx, p, c, client, submitted.ID, submitted.Generation)
}

func (s *submitCommand) wait(ctx context.Context, p *program, c *commands, client *api.Client, id, generation int64) error {
	submission, err := watch(ctx, p, c, client, id, generation)
	if err != nil {
		return err
	}
	given := "no verdict"
	if submission.Verdict != nil {
		given = submission.Verdict.Verdict
	}
	if s.Expect != "" && s.Expect != given {
		return fmt.Errorf("submission %d: %s was expected and %s was given", id, s.Expect, given)
	}
	return nil
}

// watch tells each step on standard error, and the end on standard output.
func watch(ctx context.Context, p *program, c *commands, client *api.Client, id, generation int64) (api.Submission, error) {
	last := ""
	submission, err := client.Watch(ctx, id, generation, func(now api.Summary) {
		step := now.State
		if now.Progress != "" {
			step = now.Progress
		}
		if step != last && !c.JSON && now.Verdict == nil {
			fmt.Fprintf(p.stderr, "submission %d, generation %d: %s\n", id, now.Generation, step)
		}
		last = step
	})
	if err != nil {
		return submission, err
	}
	if c.JSON {
		return submission, printJSON(p.stdout, submission)
	}
	printStanding(p.stdout, submission.Summary)
	return submission, nil
}

func printStanding(out io.Writer, s api.Summary) {
	if s.Verdict == nil {
		fmt.Fprintf(out, "%s\n", s.State)
		return
	}
	v := s.Verdict
	fmt.Fprintf(out, "%s  %d ms  %s", v.Verdict, v.TimeMs, mebibytes(v.MemoryBytes))
	if v.Test != "" {
		fmt.Fprintf(out, "  test %s", v.Test)
	}
	fmt.Fprintln(out)
	if v.Message != "" {
		fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(v.Message), "\n", "\n  "))
	}
}

type showCommand struct {
	ID int64 `arg:"" help:"The submission's id."`
}

// Run shows one submission.
func (s *showCommand) Run(ctx context.Context, p *program, c *commands) error {
	client := &api.Client{Base: c.Server}
	submission, err := client.Submission(ctx, s.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.stdout, submission)
	}
	fmt.Fprintf(p.stdout, "submission %d: %s in %s (%s), generation %d, %s\n", submission.ID, submission.Problem, submission.Language, submission.Filename, submission.Generation, submission.State)
	printStanding(p.stdout, submission.Summary)
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, g := range submission.Generations {
		fmt.Fprintf(table, "generation %d\t%s\t%s\tby %s\t%s\n", g.Generation, g.OpenedAt.Format(time.RFC3339), g.Cause, g.Actor, g.Reason)
	}
	for _, a := range submission.Attempts {
		outcome := a.Outcome
		if outcome == "" {
			outcome = "runs"
		}
		fmt.Fprintf(table, "attempt %d.%d\t%s\t%s\tby %s\t%s\n", a.Generation, a.Number, a.ClaimedAt.Format(time.RFC3339), outcome, a.Holder, firstLine(a.Error))
	}
	for _, v := range submission.Verdicts {
		for _, t := range v.Tests {
			fmt.Fprintf(table, "test %d %s\t%s\t%d ms\t%s\t%s\n", v.Generation, t.Name, t.Verdict, t.TimeMs, mebibytes(t.MemoryBytes), firstLine(t.Message))
		}
	}
	for _, r := range submission.Refusals {
		fmt.Fprintf(table, "refused %d ✕ %d\t%s\t×%d\t%s\t\n", r.Epoch, r.Current, r.LastAt.Format(time.RFC3339), r.Count, r.Sentence)
	}
	return table.Flush()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

type lsCommand struct {
	Limit  int   `default:"20" help:"At most so many (${default})."`
	Before int64 `help:"Only ids below this one."`
}

// Run lists submissions.
func (l *lsCommand) Run(ctx context.Context, p *program, c *commands) error {
	client := &api.Client{Base: c.Server}
	page, err := client.List(ctx, l.Before, l.Limit)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.stdout, page)
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tGEN\tVERDICT\tSTATE\tPROBLEM\tLANGUAGE\tFILE")
	for _, s := range page.Submissions {
		verdict := "–"
		if s.Verdict != nil {
			verdict = s.Verdict.Verdict
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Generation, verdict, s.State, s.Problem, s.Language, s.Filename)
	}
	return table.Flush()
}

type rejudgeCommand struct {
	ID         int64  `arg:"" help:"The submission's id."`
	Generation int64  `help:"The generation that you saw: if it has moved on, nothing happens. 0 takes whatever it is."`
	Reason     string `help:"Why; kept in the history."`
	Wait       bool   `help:"Wait for the verdict."`
}

// Run opens the next generation.
func (r *rejudgeCommand) Run(ctx context.Context, p *program, c *commands) error {
	client := &api.Client{Base: c.Server}
	rejudged, err := client.Rejudge(ctx, r.ID, r.Generation, r.Reason)
	if err != nil {
		return err
	}
	if !r.Wait {
		if c.JSON {
			return printJSON(p.stdout, rejudged)
		}
		fmt.Fprintf(p.stdout, "submission %d: generation %d → %d\n", rejudged.ID, rejudged.Before, rejudged.Now)
		return nil
	}
	fmt.Fprintf(p.stderr, "submission %d: generation %d → %d\n", rejudged.ID, rejudged.Before, rejudged.Now)
	_, err = watch(ctx, p, c, client, rejudged.ID, rejudged.Now)
	return err
}

// maxSource is above what any server takes, so that the server's own sentence is what people read.
const maxSource = 4 << 20

func readSource(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	source, err := io.ReadAll(io.LimitReader(in, maxSource+1))
	if err == nil && len(source) > maxSource {
		err = errors.New("the file is larger than 4 MiB: no judge takes that")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return source, nil
}
