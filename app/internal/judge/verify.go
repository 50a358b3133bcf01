package judge

import (
	"context"
	"fmt"
	"slices"

	"github.com/lastword-go/lastword/app/internal/judge/problem"
)

// Verified is one example submission of a package, judged.
type Verified struct {
	Problem  string    `json:"problem"`
	Name     string    `json:"submission"` // below submissions/
	Expected []Verdict `json:"expected"`   // any of these is right
	Given    Verdict   `json:"given"`      // "" when it could not be judged
	TimeMs   int64     `json:"time_ms"`
	Memory   int64     `json:"memory_bytes"`
	Test     string    `json:"test,omitempty"` // the deciding one
	Message  string    `json:"message,omitempty"`
}

// OK reports whether the verdict is one that was foreseen.
func (v Verified) OK() bool { return slices.Contains(v.Expected, v.Given) }

// Verify judges every example submission of a package and tells each as it is known. An error is the judge's own or the context's.
func (j *Judge) Verify(ctx context.Context, p *problem.Package, each func(Verified)) error {
	for _, example := range p.Submissions {
		v := Verified{Problem: p.ID, Name: example.Name, Expected: example.Expected}
		result, err := j.verify(ctx, p, example)
		switch {
		case IsInput(err):
			v.Message = err.Error()
		case err != nil:
			return fmt.Errorf("%s/submissions/%s: %w", p.ID, example.Name, err)
		default:
			v.Given, v.TimeMs, v.Memory, v.Test, v.Message = result.Verdict, result.Time.Milliseconds(), result.Memory, result.Test, result.Message
		}
		each(v)
	}
	return nil
}

func (j *Judge) verify(ctx context.Context, p *problem.Package, example problem.Submission) (Result, error) {
	files, err := example.Files()
	if err != nil {
		return Result{}, err
	}
	if len(files) != 1 {
		return Result{}, inputErrorf("the submission has %d files: one is supported", len(files))
	}
	sub := Submission{Problem: p.ID, Language: LanguageOf(files[0].Name), Filename: files[0].Name, Source: files[0].Content}
	return j.Judge(ctx, sub, func(string) error { return nil })
}
