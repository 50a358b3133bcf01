package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
)

const hostile = `</pre><script>alert(1)</script>"><img src=x onerror=alert(1)>' {{.}} javascript:alert(1)`

// stock is a Reader with values that try to break out wherever they stand.
type stock struct {
	list []api.Summary
	err  error
}

func (s stock) Submissions(context.Context, int64, int) (api.Page, error) {
	return api.Page{Submissions: s.list, Next: 7}, s.err
}

func (s stock) Submission(_ context.Context, id int64) (api.Submission, error) {
	if id != 1 {
		return api.Submission{}, lastword.ErrNotFound
	}
	at := time.Now().Add(-time.Minute)
	ended := at.Add(time.Second)
	verdict := api.Verdict{Generation: 1, Verdict: "WA", Test: hostile, Message: hostile, Tests: []api.Test{{Name: hostile, Verdict: "WA", Message: hostile}}}
	return api.Submission{Summary: summary(1), Source: hostile, Verdicts: []api.Verdict{verdict},
		Generations: []api.Generation{{Generation: 1, Cause: "submit", Actor: hostile, OpenedAt: at}, {Generation: 2, Cause: "rerun", Actor: hostile, Reason: hostile, OpenedAt: ended}},
		Attempts:    []api.Attempt{{Generation: 1, Number: 1, ID: "abcdef", Holder: hostile, ClaimedAt: at, EndedAt: &ended, Outcome: "revoked", Error: hostile}, {Generation: 2, Number: 1, ID: hostile, Holder: hostile, ClaimedAt: ended}},
		Refusals:    []api.Refusal{refusal()}}, s.err
}

func (s stock) Refusals(context.Context) ([]api.Refusal, error) {
	lease := refusal()
	lease.Kind, lease.Name = "lease", hostile
	return []api.Refusal{refusal(), lease}, s.err
}

func (s stock) Status(context.Context) (api.Status, error) {
	return api.Status{Version: hostile, Database: "sqlite", SandboxMode: hostile, Holder: hostile}, s.err
}

func refusal() api.Refusal {
	return api.Refusal{Kind: "task", Name: "1", Epoch: 1, Current: 2, ID: "abcdef", Holder: hostile, Sentence: hostile, Count: 3, LastAt: time.Now()}
}

func summary(id int64) api.Summary {
	return api.Summary{ID: id, Problem: hostile, Language: hostile, Filename: hostile, State: "running", Generation: 2, Progress: hostile, Before: &api.Verdict{Generation: 1, Verdict: "WA"},
		Refused: &api.Refused{Generation: 1, Current: 2, Count: 3}, CreatedAt: time.Now(), UpdatedAt: time.Now()}
}

func pagesOf(reader Reader) http.Handler {
	return New(Config{Reader: reader, Log: slog.New(slog.DiscardHandler), Problems: []api.Problem{{ID: "sum", Name: hostile, Hash: "0123456789abcdef", Warnings: []string{hostile}}},
		Languages: []api.Language{{Name: "c", Title: hostile, Missing: hostile, Extensions: []string{hostile}}, {Name: "python", Title: "Python 3", Installed: hostile}}})
}

func get(h http.Handler, path, host string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", path, nil)
	r.Host = host
	h.ServeHTTP(w, r)
	return w
}

var (
	allowedScript = regexp.MustCompile(`<script src="/assets/page\.js\?v=[0-9a-f]+"></script>`)
	quoted        = regexp.MustCompile(`="[^"<>]*"`)
	badMarkup     = regexp.MustCompile(`(?i)<script|<img|<[^>]*\son[a-z]+=|<[^>]*\sstyle=|<style|="|\{\{\.`)
)

// Whatever stands in the data, the pages hold no script, style or tag but our own. Braces of the data are harmless text.
func TestHostileValuesStayText(t *testing.T) {
	h := pagesOf(stock{list: []api.Summary{summary(1)}})
	for _, path := range []string{"/", "/?q=" + "%3Cscript%3E%22%3E", "/?before=9", "/submissions/1", "/submissions/1?part=detail", "/problems", "/refusals", "/status", "/nope"} {
		w := get(h, path, `localhost"><script>`)
		text := allowedScript.ReplaceAllString(w.Body.String(), "")
		text = strings.ReplaceAll(text, "{{.}}", "")
		shown := strings.Contains(text, "&lt;script&gt;alert(1)")
		if strings.Contains(text, `="javascript:`) {
			t.Errorf("%s: an address that runs", path)
		}
		text = quoted.ReplaceAllString(text, "=")
		if bad := badMarkup.FindString(text); bad != "" {
			t.Errorf("%s: %q in the page", path, bad)
		}
		if w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Code == 500 {
			t.Error(path, w.Code, w.Header())
		}
		if path != "/nope" && !shown {
			t.Errorf("%s does not show the value", path)
		}
	}
}

func TestDetailTellsTheStory(t *testing.T) {
	body := get(pagesOf(stock{}), "/submissions/1", "localhost:1").Body.String()
	for _, want := range []string{`<span class="past">1 → </span><span class="now">2</span>`, `<span class="fence">1 ✕ 2</span>`, `<s class="before"`, "opens generation 3 and fences the running attempt",
		"lastword judge rejudge 1 --server http://localhost:1<", "http://localhost:1/v1/submissions/1/rejudge", "gen 2</text>", `class="cross"`, "3 times."} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestFilterWithoutScript(t *testing.T) {
	rows := []api.Summary{{ID: 2, Problem: "sum", Language: "python", Filename: "b.py", State: "pending", Generation: 1}, {ID: 1, Problem: "average", Language: "cpp", Filename: "a.cpp", State: "succeeded", Generation: 1, Verdict: &api.Verdict{Verdict: "WA"}}}
	h := pagesOf(stock{list: rows})
	for query, want := range map[string]string{"": `<span class="count" id="count">2</span>`, "sum+QUEUED": "1 of 2", "wa": "1 of 2", "%231": "1 of 2", "a+p": "1 of 2", "zzz": "0 of 2"} {
		body := get(h, "/?q="+query, "localhost").Body.String()
		if !strings.Contains(body, want) {
			t.Errorf("%q: no %q", query, want)
		}
		if strings.Contains(body, `id="none" class="empty" hidden`) == (query == "zzz") {
			t.Errorf("%q: the sentence for nothing found", query)
		}
	}
}

// The first page with its files, and a hundred rows on it, is at most 200 KB.
func TestFirstPageIsSmall(t *testing.T) {
	var rows []api.Summary
	for id := range rowsShown {
		rows = append(rows, api.Summary{ID: int64(id), Problem: "longestcommonsubsequence", Language: "python", Filename: "solution_of_somebody.py", State: "succeeded", Generation: 2,
			Verdict: &api.Verdict{Verdict: "AC", TimeMs: 12, MemoryBytes: 1 << 22}, Refused: &api.Refused{Generation: 1, Current: 2}, CreatedAt: time.Now()})
	}
	h := pagesOf(stock{list: rows})
	total := 0
	page := get(h, "/", "localhost").Body.String()
	for _, path := range append(regexp.MustCompile(`/assets/[^"]+`).FindAllString(page, -1), "/") {
		w := get(h, path, "localhost")
		if w.Code != 200 {
			t.Error(path, w.Code)
		}
		if path != "/" && !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Error(path, w.Header())
		}
		total += w.Body.Len()
	}
	t.Logf("%d bytes", total)
	if total > 200_000 {
		t.Errorf("%d bytes", total)
	}
}

func TestFailures(t *testing.T) {
	h := pagesOf(stock{err: errors.New("secret of the database")})
	for _, path := range []string{"/", "/submissions/1", "/refusals", "/status"} {
		w := get(h, path, "localhost")
		if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "its log says why") {
			t.Error(path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/submissions/2", "/submissions/x", "/assets/nope", "/assets/..%2fweb.go", "/nope"} {
		if w := get(h, path, "localhost"); w.Code != 404 {
			t.Error(path, w.Code)
		}
	}
}

func TestStatesHaveWordAndShape(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []api.Summary{{State: "pending"}, {State: "running"}, {State: "running", Progress: "compiling"}, {State: "waiting"}, {State: "cancelled"}, {State: "failed"}, {State: "quarantined"},
		{Verdict: &api.Verdict{Verdict: "AC"}}, {Verdict: &api.Verdict{Verdict: "WA"}}, {Verdict: &api.Verdict{Verdict: "JE"}}} {
		state := stateOf(s)
		if state.Word == "" || state.Shape == "" || state.Class == "" || seen[state.Word] {
			t.Errorf("%+v", state)
		}
		seen[state.Word] = true
	}
}

func TestUnits(t *testing.T) {
	now := time.Now()
	for want, got := range map[string]string{"0 ms": millis(0), "999 ms": millis(999), "1.50 s": millis(1500), "2 min 5 s": millis(125_000), "2 h 1 min": millis(7_260_000), "–": size(0), "12 KiB": size(12 << 10), "3.5 MiB": size(7 << 19),
		"now": ago(now, now), "59 s ago": ago(now.Add(-59*time.Second), now), "2 h ago": ago(now.Add(-2*time.Hour), now), "3 d ago": ago(now.Add(-80*time.Hour), now)} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The axis holds every mark, also those of an attempt that runs on and of a refusal that came last.
func TestTimelineHoldsEverything(t *testing.T) {
	s, err := stock{}.Submission(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	line := timelineOf(s, time.Now())
	if !line.Open || len(line.Lanes) != 2 || len(line.Opened) != 2 || len(line.Lanes[0].Marks) != 1 || line.Lanes[0].End == "" || line.Lanes[1].End != "" {
		t.Errorf("%+v", line)
	}
	for _, lane := range line.Lanes {
		var x, width float64
		if _, err := fmt.Sscanf(lane.X+" "+lane.Width, "%f%% %f%%", &x, &width); err != nil || x < 0 || x+width > 100 {
			t.Errorf("%+v", lane)
		}
	}
	if none := timelineOf(api.Submission{}, time.Time{}); len(none.Lanes) != 0 {
		t.Errorf("%+v", none)
	}
}
