package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
	"github.com/lastword-go/lastword/app/internal/judge"
)

const (
	newestCount = 100 // what the event stream and the page watch
	// Refused writes are rare, and the library keeps at most 10,000 of them; the newest are enough to mark submissions.
	refusalsRead = 1000
	countUpTo    = 1000
)

// archive reads what stands in the database as the API's values.
type archive struct {
	store       *lastword.Store
	submissions *judge.Archive
}

// newest returns the newest submissions, marked with their refusals.
func (a archive) newest(ctx context.Context) ([]api.Summary, error) {
	return a.list(ctx, 0, newestCount)
}

func (a archive) list(ctx context.Context, before int64, limit int) ([]api.Summary, error) {
	list, err := a.submissions.List(ctx, before, limit)
	if err != nil || len(list) == 0 {
		return []api.Summary{}, err
	}
	refusals, err := a.store.Refusals(ctx, lastword.RefusalFilter{Kind: lastword.KindTask, Limit: refusalsRead})
	if err != nil {
		return nil, err
	}
	marks := marks(refusals)
	out := make([]api.Summary, 0, len(list))
	for _, s := range list {
		summary := summaryOf(s)
		summary.Refused = marks[strconv.FormatInt(s.ID, 10)]
		out = append(out, summary)
	}
	return out, nil
}

// marks sums refusals, the newest first, up by name.
func marks(refusals []lastword.Refusal) map[string]*api.Refused {
	out := map[string]*api.Refused{}
	for _, r := range refusals {
		if out[r.Name] == nil {
			out[r.Name] = &api.Refused{Generation: r.Epoch, Current: r.Current}
		}
		out[r.Name].Count += r.Count
	}
	return out
}

func (a archive) submission(ctx context.Context, id int64) (api.Submission, error) {
	d, err := a.submissions.Submission(ctx, id)
	if err != nil {
		return api.Submission{}, err
	}
	out := api.Submission{Summary: summaryOf(d.Summary), Source: string(d.Source), Verdicts: []api.Verdict{}, Generations: []api.Generation{}, Attempts: []api.Attempt{}, Refusals: []api.Refusal{}}
	out.Refused = marks(d.Refusals)[strconv.FormatInt(id, 10)]
	if !utf8.Valid(d.Source) {
		out.SourceBase64 = d.Source
	}
	for _, v := range d.Verdicts {
		out.Verdicts = append(out.Verdicts, *verdictOf(&v))
	}
	for _, g := range d.Generations {
		out.Generations = append(out.Generations, api.Generation{Generation: g.Generation, Cause: g.Cause, Actor: g.Actor, Reason: g.Reason, OpenedAt: g.Opened})
	}
	for _, at := range d.Attempts {
		out.Attempts = append(out.Attempts, api.Attempt{Generation: at.Generation, Number: at.Number, ID: at.NonceStart, Holder: at.Holder, ClaimedAt: at.Claimed,
			EndedAt: orNull(at.Ended), Outcome: at.Outcome, Error: at.Error})
	}
	for _, r := range d.Refusals {
		out.Refusals = append(out.Refusals, refusalOf(r, d.Generations))
	}
	return out, nil
}

func (a archive) refusals(ctx context.Context, filter lastword.RefusalFilter) ([]api.Refusal, error) {
	list, err := a.store.Refusals(ctx, filter)
	out := make([]api.Refusal, 0, len(list))
	for _, r := range list {
		out = append(out, refusalOf(r, nil))
	}
	return out, err
}

// leases reads one more than asked for, to tell whether there are more.
func (a archive) leases(ctx context.Context, after string, limit int) (api.Leases, error) {
	list, err := a.store.Leases(ctx, after, limit+1)
	out := api.Leases{Leases: []api.Lease{}}
	for _, l := range list {
		if len(out.Leases) == limit {
			out.Next = out.Leases[limit-1].Name
			break
		}
		out.Leases = append(out.Leases, api.Lease{Name: l.Name, Fence: l.Fence, Holder: l.Holder, Live: l.Live, Until: orNull(l.Until), TTLMs: l.TTL.Milliseconds(), AcquiredAt: l.Acquired})
	}
	return out, err
}

// count counts submissions in a state, up to countUpTo.
func (a archive) count(ctx context.Context, state lastword.State) (int, error) {
	list, err := a.store.Tasks(ctx, lastword.TaskFilter{Kind: judge.TaskKind, State: state, Limit: countUpTo})
	return len(list), err
}

func summaryOf(s judge.Summary) api.Summary {
	return api.Summary{ID: s.ID, Problem: s.Problem, Language: s.Language, Filename: s.Filename, State: string(s.State), Generation: s.Generation,
		Progress: progressOf(s), Verdict: verdictOf(s.Verdict), Before: verdictOf(s.Before), CreatedAt: s.Created, UpdatedAt: s.Updated}
}

// progressOf hides the last word of an attempt that has ended.
func progressOf(s judge.Summary) string {
	if s.State != lastword.Running {
		return ""
	}
	return s.Progress
}

func verdictOf(v *judge.VerdictInfo) *api.Verdict {
	if v == nil {
		return nil
	}
	out := &api.Verdict{Generation: v.Generation, Verdict: string(v.Verdict), TimeMs: v.Time.Milliseconds(), MemoryBytes: v.Memory, Test: v.Test, Message: v.Message,
		ProblemHash: v.ProblemHash, JudgedAt: v.Judged}
	for _, t := range v.Tests {
		out.Tests = append(out.Tests, api.Test{Name: t.Name, Verdict: string(t.Verdict), TimeMs: t.Time.Milliseconds(), MemoryBytes: t.Memory, Message: t.Message})
	}
	return out
}

func refusalOf(r lastword.Refusal, generations []lastword.GenerationInfo) api.Refusal {
	return api.Refusal{Kind: string(r.Kind), Name: r.Name, Epoch: r.Epoch, ID: r.NonceStart, Current: r.Current, Holder: r.Holder, Sentence: sentence(r, generations),
		Count: r.Count, FirstAt: r.First, LastAt: r.Last}
}

// sentence tells a refusal to somebody who does not know the words of the library.
func sentence(r lastword.Refusal, generations []lastword.GenerationInfo) string {
	if r.Kind != lastword.KindTask {
		return fmt.Sprintf("%s tried to %s under lease %s with fence %d; %s.", r.Holder, deed(r.Operation), r.Name, r.Epoch, r.Reason)
	}
	why := r.Reason
	next := slices.IndexFunc(generations, func(g lastword.GenerationInfo) bool { return g.Generation == r.Epoch+1 })
	if next >= 0 && r.Current > r.Epoch {
		why = fmt.Sprintf("generation %d had begun %s before", r.Epoch+1, span(r.Last.Sub(generations[next].Opened)))
	}
	did := deed(r.Operation)
	if did == "write" {
		did = "write to"
	}
	return fmt.Sprintf("%s tried to %s submission %s as generation %d; %s.", r.Holder, did, r.Name, r.Epoch, why)
}

// deed names a refused operation of the library as something that somebody tried to do.
func deed(operation string) string {
	switch operation {
	case "guard", "exec":
		return "write"
	case "extend":
		return "go on with"
	case "progress":
		return "report on"
	case "return":
		return "give back"
	}
	return operation
}

func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
