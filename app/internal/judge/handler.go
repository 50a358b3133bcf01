package judge

import (
	"context"
	"errors"

	"github.com/lastword-go/lastword"
)

// Register makes the worker judge submissions: it reads the source, tells each step as the task's progress, and records the result
// under the attempt's guard. Whatever the sandbox fails at is tried again; what can never be judged fails at once, and the archive makes
// it a JE.
func Register(w *lastword.Worker, j *Judge, archive *Archive) {
	lastword.Handle(w, TaskKind, func(ctx context.Context, attempt *lastword.Attempt, _ struct{}) (any, error) {
		result, err := Attempt(ctx, j, archive, attempt)
		if err != nil {
			return nil, err
		}
		return nil, archive.Record(ctx, attempt, result)
	})
}

// Attempt judges the submission of one attempt without recording anything.
func Attempt(ctx context.Context, j *Judge, archive *Archive, attempt *lastword.Attempt) (Result, error) {
	sub, err := archive.source(ctx, attempt.ID())
	if errors.Is(err, lastword.ErrNotFound) {
		return Result{}, lastword.Permanent(err)
	}
	if err != nil {
		return Result{}, err
	}
	result, err := j.Judge(ctx, sub, func(step string) error { return attempt.Progress(ctx, step) })
	if IsInput(err) {
		err = lastword.Permanent(err)
	}
	return result, err
}
