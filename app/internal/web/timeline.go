package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lastword-go/lastword/app/internal/api"
)

// timeline draws a submission's attempts as bars on one axis of time, with marks. Numbers are percent of the width.
type timeline struct {
	Lanes  []lane
	Opened []opened // generations
	Height int
	Total  string
	Open   bool // the axis ends now
	Label  string
}

type lane struct {
	Generation int64
	Number     int
	Class      string
	X, Width   string
	End        string // "" while it runs
	Y, Middle  int
	// Of the mark at the end, and of the cross of a refusal.
	Top, Bottom, Baseline int
	Marks                 []refusalMark
	Title                 string
}

type refusalMark struct{ X, Title string }

type opened struct {
	X, Anchor  string
	Generation int64
	Title      string
}

const (
	laneHeight = 22
	axisHeight = 16 // above the lanes, for the generations' numbers
)

func timelineOf(s api.Submission, now time.Time) timeline {
	start, end := s.CreatedAt, s.CreatedAt.Add(time.Millisecond)
	later := func(t time.Time) {
		if t.After(end) {
			end = t
		}
	}
	out := timeline{Height: axisHeight + laneHeight*len(s.Attempts)}
	for _, a := range s.Attempts {
		later(a.ClaimedAt)
		if a.EndedAt == nil {
			out.Open = true
		} else {
			later(*a.EndedAt)
		}
	}
	for _, g := range s.Generations {
		later(g.OpenedAt)
	}
	for _, r := range s.Refusals {
		later(r.LastAt)
	}
	if out.Open {
		later(now)
	}
	total := end.Sub(start)
	// A margin on both sides keeps the marks inside.
	at := func(t time.Time) float64 { return 1 + 98*float64(max(t.Sub(start), 0))/float64(total) }
	out.Total = millis(total.Milliseconds())
	for _, g := range s.Generations {
		x := at(g.OpenedAt)
		o := opened{X: percent(x), Generation: g.Generation, Anchor: "start", Title: fmt.Sprintf("generation %d opened by %s at %s", g.Generation, g.Cause, exact(g.OpenedAt))}
		if x > 90 {
			o.Anchor = "end"
		}
		out.Opened = append(out.Opened, o)
	}
	for i, a := range s.Attempts {
		out.Lanes = append(out.Lanes, laneOf(a, s.Refusals, i, end, at))
	}
	out.Label = fmt.Sprintf("%d attempts over %s, %d refused writes; the tables below say the same", len(s.Attempts), out.Total, len(s.Refusals))
	return out
}

func laneOf(a api.Attempt, refusals []api.Refusal, index int, end time.Time, at func(time.Time) float64) lane {
	state := outcomeState(a.Outcome)
	y := axisHeight + index*laneHeight
	l := lane{Generation: a.Generation, Number: a.Number, Class: state.Class, X: percent(at(a.ClaimedAt)), Y: y + 6, Middle: y + laneHeight/2,
		Top: y + 3, Bottom: y + laneHeight - 3, Baseline: y + laneHeight/2 + 5}
	until := end
	if a.EndedAt != nil {
		until = *a.EndedAt
		l.End = percent(at(until))
	}
	l.Width = percent(max(at(until)-at(a.ClaimedAt), 0.2))
	l.Title = fmt.Sprintf("generation %d, attempt %d of %s: %s, %s", a.Generation, a.Number, a.Holder, state.Word, millis(until.Sub(a.ClaimedAt).Milliseconds()))
	for _, r := range refusals {
		if r.Epoch == a.Generation && r.ID == a.ID {
			l.Marks = append(l.Marks, refusalMark{X: percent(at(r.LastAt)), Title: r.Sentence})
		}
	}
	return l
}

func percent(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + "%" }
