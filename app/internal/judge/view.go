package judge

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/lastword-go/lastword"
)

// Summary is one line of the list of submissions.
type Summary struct {
	ID         int64
	Problem    string
	Language   string
	Filename   string
	State      lastword.State
	Generation int64
	Progress   string // while it is judged
	// Verdict is that of the newest generation, nil while it is waited for. Before is that of the generation before, once there is one.
	Verdict *VerdictInfo
	Before  *VerdictInfo
	Created time.Time
	Updated time.Time
}

// Detail is everything about one submission.
type Detail struct {
	Summary
	Source      []byte
	Verdicts    []VerdictInfo // by generation, with their tests
	Generations []lastword.GenerationInfo
	Attempts    []lastword.AttemptInfo
	Refusals    []lastword.Refusal
}

// List returns submissions, the newest first: those with an id below before (0 begins at the newest), at most limit.
func (a *Archive) List(ctx context.Context, before int64, limit int) ([]Summary, error) {
	tasks, err := a.store.Tasks(ctx, lastword.TaskFilter{Kind: TaskKind, Before: before, Limit: limit})
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	return a.summaries(ctx, tasks)
}

func (a *Archive) summaries(ctx context.Context, tasks []lastword.TaskInfo) ([]Summary, error) {
	high, low := tasks[0].ID, tasks[len(tasks)-1].ID
	verdicts, err := a.verdicts(ctx, low, high)
	if err != nil {
		return nil, err
	}
	heads := map[int64]Submission{}
	err = a.all(ctx, "SubmissionsBetween", lastword.Args{"low": low, "high": high}, func(rows *sql.Rows) error {
		var id int64
		var sub Submission
		err := rows.Scan(&id, &sub.Problem, &sub.Language, &sub.Filename)
		heads[id] = sub
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Summary, 0, len(tasks))
	for _, task := range tasks {
		head := heads[task.ID]
		s := Summary{ID: task.ID, Problem: head.Problem, Language: head.Language, Filename: head.Filename, State: task.State, Generation: task.Generation,
			Progress: task.Progress, Created: task.Created, Updated: task.Updated}
		for _, v := range slices.Backward(verdicts[task.ID]) {
			switch {
			case v.Generation == task.Generation:
				s.Verdict = &v
			case s.Before == nil:
				s.Before = &v
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// Submission returns everything about one submission, or an error that matches lastword.ErrNotFound.
func (a *Archive) Submission(ctx context.Context, id int64) (Detail, error) {
	task, err := a.task(ctx, id)
	if err != nil {
		return Detail{}, err
	}
	sub, err := a.source(ctx, id)
	if err != nil {
		return Detail{}, err
	}
	summaries, err := a.summaries(ctx, []lastword.TaskInfo{task})
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Summary: summaries[0], Source: sub.Source}
	verdicts, err := a.verdicts(ctx, id, id)
	if err != nil {
		return Detail{}, err
	}
	d.Verdicts = verdicts[id]
	if err := a.tests(ctx, id, d.Verdicts); err != nil {
		return Detail{}, err
	}
	if d.Generations, err = a.store.Generations(ctx, id); err != nil {
		return Detail{}, err
	}
	if d.Attempts, err = a.store.Attempts(ctx, id); err != nil {
		return Detail{}, err
	}
	d.Refusals, err = a.store.Refusals(ctx, lastword.RefusalFilter{Kind: lastword.KindTask, Name: strconv.FormatInt(id, 10)})
	return d, err
}

func (a *Archive) tests(ctx context.Context, id int64, verdicts []VerdictInfo) error {
	return a.all(ctx, "TestsRead", lastword.Args{"id": id}, func(rows *sql.Rows) error {
		var generation, timeMs int64
		var test TestResult
		if err := rows.Scan(&generation, &test.Name, &test.Verdict, &timeMs, &test.Memory, &test.Message); err != nil {
			return err
		}
		test.Time = time.Duration(timeMs) * time.Millisecond
		for i := range verdicts {
			if verdicts[i].Generation == generation {
				verdicts[i].Tests = append(verdicts[i].Tests, test)
			}
		}
		return nil
	})
}
