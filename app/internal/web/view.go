package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastword-go/lastword/app/internal/api"
)

// state is where a submission or a generation stands: a class for the colour, and always a shape and words beside it. The script
// has the same table.
type state struct{ Class, Shape, Word string }

func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":   func(name string) string { return "/assets/" + name + "?v=" + p.assetTags[name] },
		"millis":  millis,
		"bytes":   size,
		"exact":   exact,
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"ago":     ago,
		"verdict": verdictState,
		"outcome": outcomeState,
		"short":   func(text string) string { return text[:min(len(text), 12)] },
		"at":      serverFlag,
		"list":    func(names []string) string { return strings.Join(names, " ") },
	}
}

func verdictWord(verdict string) string {
	switch verdict {
	case "AC":
		return "accepted"
	case "WA":
		return "wrong answer"
	case "TLE":
		return "time limit"
	case "MLE":
		return "memory limit"
	case "OLE":
		return "output limit"
	case "RTE":
		return "run-time error"
	case "CE":
		return "compile error"
	case "JE":
		return "judge error"
	}
	return ""
}

func verdictState(verdict string) state {
	word := verdict + " " + verdictWord(verdict)
	switch verdict {
	case "AC":
		return state{"done", "●", word}
	case "JE":
		return state{"failed", "▲", word}
	}
	return state{"failed", "◆", word}
}

func stateOf(s api.Summary) state {
	switch {
	case s.Verdict != nil:
		return verdictState(s.Verdict.Verdict)
	case s.State == "pending":
		return state{"waiting", "○", "queued"}
	case s.State == "running":
		return state{"running", "◐", cmp.Or(s.Progress, "running")}
	case s.State == "waiting":
		return state{"waiting", "○", "waiting"}
	case s.State == "cancelled":
		return state{"waiting", "⊘", "cancelled"}
	}
	return state{"failed", "▲", s.State}
}

// outcomeState is that of an attempt.
func outcomeState(outcome string) state {
	switch outcome {
	case "":
		return state{"running", "◐", "running"}
	case "succeeded":
		return state{"done", "●", outcome}
	case "failed":
		return state{"failed", "◆", outcome}
	case "revoked", "cancelled":
		return state{"failed", "✕", outcome}
	}
	return state{"waiting", "⊘", outcome}
}

// row is one line of the list.
type row struct {
	api.Summary
	State  state
	Before string // the verdict of the generation before, while the new one is waited for
	Past   int64  // the generation before; 0 for the first
	Text   string // what the filter looks at
	Now    time.Time
	Hidden bool
}

func rowOf(s api.Summary, now time.Time) row {
	r := row{Summary: s, State: stateOf(s), Now: now}
	if s.Generation > 1 {
		r.Past = s.Generation - 1
	}
	if s.Verdict == nil && s.Before != nil {
		r.Before = s.Before.Verdict
	}
	refused := ""
	if s.Refused != nil {
		refused = "refused"
	}
	r.Text = strings.ToLower(strings.Join([]string{"#" + strconv.FormatInt(s.ID, 10), s.Problem, s.Language, s.Filename, s.State, r.State.Word, refused}, " "))
	return r
}

// matches reports whether each word of the filter is in the row.
func (r row) matches(query string) bool {
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(query)), func(word string) bool { return !strings.Contains(r.Text, word) })
}

// detail is what a row opens to.
type detail struct {
	api.Submission
	State    state
	Before   string
	Past     int64
	Next     int64
	Now      time.Time
	Server   string
	Shown    *api.Verdict // whose tests and message are shown: the newest there is
	Timeline timeline
	History  []generation
}

// generation is one line of a submission's history, the newest first.
type generation struct {
	api.Generation
	Verdict *api.Verdict
	Current bool
}

func detailOf(s api.Submission, now time.Time, server string) detail {
	r := rowOf(s.Summary, now)
	d := detail{Submission: s, State: r.State, Before: r.Before, Past: r.Past, Next: s.Generation + 1, Now: now, Server: server, Timeline: timelineOf(s, now)}
	verdicts := map[int64]*api.Verdict{}
	for i := range s.Verdicts {
		d.Shown = &s.Verdicts[i]
		verdicts[d.Shown.Generation] = d.Shown
	}
	for _, g := range slices.Backward(s.Generations) {
		d.History = append(d.History, generation{Generation: g, Verdict: verdicts[g.Generation], Current: g.Generation == s.Generation})
	}
	return d
}

// Warning says what a rejudge will do, before it is done.
func (d detail) Warning() string {
	opens := fmt.Sprintf("Rejudge opens generation %d", d.Next)
	switch {
	case d.Submission.State == "running":
		return opens + " and fences the running attempt: whatever it still writes is refused."
	case d.Verdict != nil:
		return fmt.Sprintf("%s. The verdict of generation %d stays in the history.", opens, d.Generation)
	}
	return opens + "; it takes this one's place in the queue."
}

func millis(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms < 1000:
		return strconv.FormatInt(ms, 10) + " ms"
	case ms < 60_000:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	case ms < 3_600_000:
		return fmt.Sprintf("%d min %d s", ms/60_000, ms/1000%60)
	}
	return fmt.Sprintf("%d h %d min", ms/3_600_000, ms/60_000%60)
}

func size(n int64) string {
	switch {
	case n <= 0:
		return "–"
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 0, 64) + " KiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

func ago(t, now time.Time) string {
	switch s := int64(now.Sub(t).Seconds()); {
	case s < 5:
		return "now"
	case s < 60:
		return fmt.Sprintf("%d s ago", s)
	case s < 3600:
		return fmt.Sprintf("%d min ago", s/60)
	case s < 86_400:
		return fmt.Sprintf("%d h ago", s/3600)
	default:
		return fmt.Sprintf("%d d ago", s/86_400)
	}
}

// serverFlag is what a command needs to find this server where it does not look by itself.
func serverFlag(server string) string {
	if server == "http://127.0.0.1:8080" || server == "http://localhost:8080" {
		return ""
	}
	return " --server " + server
}
