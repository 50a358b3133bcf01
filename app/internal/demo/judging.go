package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/sandbox"
)

// The story's problem: its answer is wrong at first, so that the first judging says WA.
const (
	problemID   = "double"
	problemYAML = "problem_format_version: 2023-07-draft\nname: Twice the number\nlicense: cc0\nlimits:\n  time_limit: 5\n  memory: 256\n"
	input       = "21\n"
	wrongAnswer = "24\n"
	rightAnswer = "42\n"
)

// judgeStory: worker A has judged a submission WA against a wrong answer file when it is stopped. The file is mended, the reaper opens the next
// generation, worker B judges it AC. Then A wakes up and reports.
func (s *stage) judgeStory(ctx context.Context, guarded bool) (landed bool, err error) {
	dir, err := os.MkdirTemp("", "lastword-demo-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a few small files
	if err := writePackage(filepath.Join(dir, problemID)); err != nil {
		return false, err
	}
	id, err := s.submitDouble(ctx)
	if err != nil {
		return false, err
	}
	a, err := s.start(ctx, "A", "judge", guarded, "--problems", dir)
	if err != nil {
		return false, err
	}
	defer a.end()
	readyA, err := a.expect(ctx, "ready")
	if err != nil {
		return false, err
	}
	s.say("worker A (process %d) has judged submission %d, generation %d: %s", a.pid(), id, readyA.Epoch, readyA.Verdict)
	if err := a.freeze(); err != nil {
		return false, err
	}
	s.say("A is stopped (SIGSTOP) just before it reports; the answer file, which was wrong, is mended meanwhile")
	if err := os.WriteFile(filepath.Join(dir, problemID, "data", "secret", "1.ans"), []byte(rightAnswer), 0o644); err != nil {
		return false, err
	}
	err = until(ctx, "the end of A's lease", func() (bool, error) {
		n, err := s.store.Reap(ctx, 10)
		return n > 0, err
	})
	if err != nil {
		return false, err
	}
	s.say("no heartbeat for %v: the reaper opened generation %d → %d", s.Lease, readyA.Epoch, readyA.Epoch+1)
	if err := s.playB(ctx, dir, guarded); err != nil {
		return false, err
	}
	if err := a.proceed(); err != nil {
		return false, err
	}
	if err := a.thaw(); err != nil {
		return false, err
	}
	s.say("A is continued (SIGCONT) and reports %s", readyA.Verdict)
	last, err := a.next(ctx)
	if err != nil {
		return false, err
	}
	landed, err = s.scoreboardAfter(ctx, id, last)
	if !guarded {
		err = errors.Join(err, s.clear(ctx, id))
	}
	return landed, err
}

func (s *stage) submitDouble(ctx context.Context) (id int64, err error) {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM demo_scoreboard`); err != nil {
		return 0, err
	}
	sub := judge.Submission{Problem: problemID, Language: "python", Filename: "double.py", Source: []byte("print(2 * int(input()))\n")}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		sub = judge.Submission{Problem: problemID, Language: "c", Filename: "double.c", Source: []byte("#include <stdio.h>\nint main(void) { long n; if (scanf(\"%ld\", &n) == 1) printf(\"%ld\\n\", 2 * n); }\n")}
	}
	return s.archive.Submit(ctx, sub)
}

func (s *stage) playB(ctx context.Context, dir string, guarded bool) error {
	b, err := s.start(ctx, "B", "judge", guarded, "--problems", dir)
	if err != nil {
		return err
	}
	defer b.end()
	ready, err := b.expect(ctx, "ready")
	if err != nil {
		return err
	}
	if err := b.proceed(); err != nil {
		return err
	}
	if _, err := b.expect(ctx, "wrote"); err != nil {
		return err
	}
	s.say("worker B (process %d) has judged generation %d and reported: %s", b.pid(), ready.Epoch, ready.Verdict)
	return nil
}

func (s *stage) scoreboardAfter(ctx context.Context, id int64, last message) (landed bool, err error) {
	switch last.Event {
	case "failed":
		return false, fmt.Errorf("process A could not report: %s", last.Reason)
	case "refused":
		s.refusal("A", last)
	}
	var verdict, by string
	query := fmt.Sprintf(`SELECT verdict, written_by FROM demo_scoreboard WHERE submission_id = %d`, id)
	if err := s.db.QueryRowContext(ctx, query).Scan(&verdict, &by); err != nil {
		return false, err
	}
	if by == "A" {
		s.say("the scoreboard now says %s, written by A: the stale verdict LANDED over B's", verdict)
		return true, nil
	}
	s.say("the scoreboard still says %s, written by %s", verdict, by)
	return last.Event == "wrote", nil
}

// clear ends the task if the unguarded workers left it behind.
func (s *stage) clear(ctx context.Context, id int64) error {
	task, err := s.store.Task(ctx, id)
	if err != nil {
		return err
	}
	err = s.store.Cancel(ctx, nil, id, task.Generation, "demo", "played without the guard")
	if errors.Is(err, lastword.ErrConflict) {
		return nil
	}
	return err
}

func writePackage(dir string) error {
	for name, content := range map[string]string{
		"problem.yaml":      problemYAML,
		"data/secret/1.in":  input,
		"data/secret/1.ans": wrongAnswer,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Judge is the child's side: it claims one submission, judges it, waits for its cue, and writes the verdict, guarded or not.
func Judge(ctx context.Context, store *lastword.Store, name string, lease time.Duration, guarded bool, problems string, in io.Reader, out io.Writer) error {
	c := newCast(in, out)
	archive, err := judge.OpenArchive(ctx, store)
	if err != nil {
		return err
	}
	packages, err := problem.OpenAll(problems)
	if err != nil {
		return err
	}
	// The demo's own program is not hostile, so the demo runs on machines that have no sandbox, too.
	box, err := sandbox.New(ctx, &sandbox.Options{AllowUnsafe: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer box.Close()
	j := judge.New(packages, judge.ProbeLanguages(ctx), box)
	ctx, stop := context.WithCancel(ctx)
	worker := lastword.NewWorker(store, lastword.WorkerOptions{Slots: 1, Lease: lease, Source: lastword.Poll(50 * time.Millisecond), Label: name, Grace: time.Minute})
	lastword.Handle(worker, judge.TaskKind, func(jobCtx context.Context, attempt *lastword.Attempt, _ struct{}) (any, error) {
		defer stop()
		result, err := judge.Attempt(jobCtx, j, archive, attempt)
		if err != nil {
			return nil, errors.Join(err, c.outcome(err))
		}
		if err := c.tell(message{Event: "ready", Epoch: attempt.Generation(), Verdict: string(result.Verdict)}); err != nil {
			return nil, err
		}
		if err := c.waitForCue(); err != nil {
			return nil, err
		}
		scoreboard := func(ctx context.Context, tx *sql.Tx) error {
			return writeScoreboard(ctx, tx, attempt.ID(), result.Verdict, name)
		}
		// A worker that does not look at its context: only the guard stands between it and the scoreboard.
		stubborn := context.WithoutCancel(jobCtx)
		if guarded {
			err = archive.Record(stubborn, attempt, result, scoreboard)
		} else {
			err = store.InTx(stubborn, nil, scoreboard)
		}
		return nil, errors.Join(err, c.outcome(err))
	})
	return worker.Run(ctx)
}

func writeScoreboard(ctx context.Context, tx *sql.Tx, id int64, verdict judge.Verdict, name string) error {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`DELETE FROM demo_scoreboard WHERE submission_id = %d`, id)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO demo_scoreboard (submission_id, verdict, written_by) VALUES (%d, '%s', '%s')`, id, verdict, name))
	return err
}
