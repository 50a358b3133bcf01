package judge

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lastword-go/lastword"
)

//go:embed postgres.sql
var postgresSQL string

//go:embed sqlite.sql
var sqliteSQL string

// TaskKind is the kind of a submission's task.
const TaskKind = "judge"

// Archive keeps submissions and verdicts. It is safe for use by several goroutines.
type Archive struct {
	store      *lastword.Store
	statements lastword.Statements
}

// OpenArchive prepares the judge's tables beside the library's; running it again is harmless.
func OpenArchive(ctx context.Context, store *lastword.Store) (*Archive, error) {
	dialect := store.Dialect()
	text, ok := map[string]string{"postgres": postgresSQL, "sqlite": sqliteSQL}[dialect.Name]
	if !ok {
		return nil, fmt.Errorf("the judge has no tables for %s: use sqlite or postgres", dialect.Name)
	}
	statements, err := lastword.ParseStatements(text, "", dialect.Placeholder)
	if err != nil {
		return nil, err
	}
	for _, table := range []string{"SubmissionsTable", "VerdictsTable", "TestsTable"} {
		if _, err := store.DB().ExecContext(ctx, statements[table].Text); err != nil {
			return nil, fmt.Errorf("make the judge's tables: %w", err)
		}
	}
	return &Archive{store: store, statements: statements}, nil
}

// Submission is a program somebody wants judged.
type Submission struct {
	Problem  string // the package's id
	Language string // the language's name
	Filename string // as the sender called it
	Source   []byte
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (a *Archive) exec(ctx context.Context, q querier, name string, args lastword.Args) error {
	statement := a.statements[name]
	if _, err := q.ExecContext(ctx, statement.Text, statement.Bind(args)...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (a *Archive) all(ctx context.Context, name string, args lastword.Args, each func(*sql.Rows) error) error {
	statement := a.statements[name]
	rows, err := a.store.DB().QueryContext(ctx, statement.Text, statement.Bind(args)...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// attemptsBeforeJudgeError is how often the judge's own failure is tried again.
const attemptsBeforeJudgeError = 3

// Submit stores a submission and its task in one transaction and returns their id. The submission must have passed [Judge.Check].
func (a *Archive) Submit(ctx context.Context, sub Submission) (id int64, err error) {
	task := lastword.NewTask(TaskKind, struct{}{})
	task.MaxAttempts = attemptsBeforeJudgeError
	err = a.store.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		ids, err := a.store.Submit(ctx, tx, task)
		if err != nil {
			return err
		}
		id = ids[0]
		return a.exec(ctx, tx, "SubmissionInsert", lastword.Args{"id": id, "problem": sub.Problem, "language": sub.Language, "filename": clean(sub.Filename, 255), "source": sub.Source})
	})
	if err != nil {
		return 0, fmt.Errorf("store the submission: %w", err)
	}
	return id, nil
}

// Rejudge opens the next generation of a submission and returns its number. A running judging is fenced at once. generation is the
// one that the caller saw; 0 means whatever it is now.
func (a *Archive) Rejudge(ctx context.Context, id, generation int64, actor, reason string) (next int64, err error) {
	task, err := a.task(ctx, id)
	if err != nil {
		return 0, err
	}
	if generation == 0 {
		generation = task.Generation
	}
	return a.store.Rerun(ctx, nil, id, generation, lastword.RerunOptions{Actor: actor, Reason: reason})
}

func (a *Archive) task(ctx context.Context, id int64) (lastword.TaskInfo, error) {
	task, err := a.store.Task(ctx, id)
	if err == nil && task.Kind != TaskKind {
		err = lastword.ErrNotFound
	}
	if errors.Is(err, lastword.ErrNotFound) {
		return task, fmt.Errorf("submission %d: %w", id, lastword.ErrNotFound)
	}
	return task, err
}

// source reads what was submitted.
func (a *Archive) source(ctx context.Context, id int64) (sub Submission, err error) {
	found := false
	err = a.all(ctx, "SubmissionRead", lastword.Args{"id": id}, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&sub.Problem, &sub.Language, &sub.Filename, &sub.Source)
	})
	if err == nil && !found {
		err = fmt.Errorf("submission %d: %w", id, lastword.ErrNotFound)
	}
	return sub, err
}

// Record writes a result under its attempt's guard: the verdict, its tests and the end of the task stand or fall together. A stale
// attempt is refused with lastword.ErrFenced and writes nothing. A result without a verdict of the known ones is refused before SQL.
// effects, such as a row of a scoreboard, are written in the same transaction.
func (a *Archive) Record(ctx context.Context, attempt *lastword.Attempt, result Result, effects ...func(ctx context.Context, tx *sql.Tx) error) error {
	if _, err := ParseVerdict(string(result.Verdict)); err != nil {
		return fmt.Errorf("record submission %d: %w", attempt.ID(), err)
	}
	outcome := struct {
		Verdict Verdict `json:"verdict"`
		Test    string  `json:"test,omitempty"`
	}{result.Verdict, result.Test}
	return attempt.Complete(ctx, outcome, func(ctx context.Context, tx *sql.Tx) error {
		for _, effect := range effects {
			if err := effect(ctx, tx); err != nil {
				return err
			}
		}
		return a.insertVerdict(ctx, tx, attempt.ID(), attempt.Generation(), result)
	})
}

func (a *Archive) insertVerdict(ctx context.Context, tx *sql.Tx, id, generation int64, result Result) error {
	err := a.exec(ctx, tx, "VerdictInsert", lastword.Args{"id": id, "generation": generation, "verdict": string(result.Verdict), "time_ms": result.Time.Milliseconds(),
		"memory_bytes": result.Memory, "test": result.Test, "message": clean(result.Message, maxMessage), "problem_hash": result.ProblemHash})
	if err != nil {
		return err
	}
	for i, test := range result.Tests {
		err := a.exec(ctx, tx, "TestInsert", lastword.Args{"id": id, "generation": generation, "number": i + 1, "name": test.Name, "verdict": string(test.Verdict),
			"time_ms": test.Time.Milliseconds(), "memory_bytes": test.Memory, "message": clean(test.Message, maxMessage)})
		if err != nil {
			return err
		}
	}
	return nil
}

// Publish implements lastword.Sink: a task that ended without a verdict (its judge failed or its workers were lost too often) gets the
// verdict JE for that generation. It needs no guard: an ended generation never changes, and a later one has rows of its own.
func (a *Archive) Publish(ctx context.Context, event lastword.Event) error {
	if event.Kind != TaskKind || event.Topic != lastword.TopicFailed && event.Topic != lastword.TopicQuarantined {
		return nil
	}
	message := "the judge failed"
	if task, err := a.store.Task(ctx, event.TaskID); err == nil && task.Generation == event.Generation {
		message = task.Error
	}
	return a.exec(ctx, a.store.DB(), "VerdictInsertMissing", lastword.Args{"id": event.TaskID, "generation": event.Generation, "message": message})
}

const maxMessage = 4 << 10

// clean makes text from a program's output fit to be stored and shown: valid UTF-8 of at most limit bytes without control
// characters other than tab and newline.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// VerdictInfo is a verdict as it stands in the archive.
type VerdictInfo struct {
	Generation int64
	Result
	Judged time.Time
}

// verdicts reads the verdicts of the submissions low … high, by submission, in order of generation.
func (a *Archive) verdicts(ctx context.Context, low, high int64) (map[int64][]VerdictInfo, error) {
	out := map[int64][]VerdictInfo{}
	err := a.all(ctx, "VerdictsBetween", lastword.Args{"low": low, "high": high}, func(rows *sql.Rows) error {
		var id, timeMs, judged int64
		var v VerdictInfo
		err := rows.Scan(&id, &v.Generation, &v.Verdict, &timeMs, &v.Memory, &v.Test, &v.Message, &v.ProblemHash, &judged)
		v.Time, v.Judged = time.Duration(timeMs)*time.Millisecond, time.UnixMilli(judged).UTC()
		out[id] = append(out[id], v)
		return err
	})
	return out, err
}
