package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/server"
)

// patience is for what must happen; nothing waits so long when it does.
const patience = 30 * time.Second

// turnstile is a worker's source that lets it look for work when the test says so. The test knows when the worker stands there.
type turnstile struct{ idle, open chan struct{} }

func (g turnstile) Wait(ctx context.Context) {
	select {
	case g.idle <- struct{}{}:
	case <-ctx.Done():
		return
	}
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// stage is a server with a worker whose attempts the test plays step by step.
type stage struct {
	t        *testing.T
	archive  *judge.Archive
	store    *lastword.Store
	server   *server.Server
	http     *httptest.Server
	turn     turnstile
	attempts chan *lastword.Attempt
	leave    chan error        // lets the handler return
	next     *lastword.Attempt // claimed already, since it was there when the one before had ended
}

func newStage(t *testing.T) *stage {
	t.Helper()
	db, store, err := database.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "page.db"), &lastword.Options{Holder: "worker-2"})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	archive, err := judge.OpenArchive(t.Context(), store)
	must(t, err)
	problems := []*problem.Package{{ID: "sum", Name: "Sum of two", Hash: strings.Repeat("5ae1", 16), Tests: make([]problem.Test, 2), Limits: problem.Limits{Time: time.Second, Memory: 256 << 20, Code: 128 << 10}},
		{ID: "average", Name: "The average of many numbers", Hash: strings.Repeat("77b0", 16), Tests: make([]problem.Test, 12), Limits: problem.Limits{Time: 2 * time.Second, Memory: 512 << 20, Code: 128 << 10}}}
	languages := []judge.LanguageStatus{{Language: judge.Language{Name: "python", Title: "Python 3", Extensions: []string{".py"}}, Installed: "Python 3.13.5"},
		{Language: judge.Language{Name: "c", Title: "C", Extensions: []string{".c"}}, Missing: "/usr/bin/gcc is not installed: install it to judge C"}}
	s := &stage{t: t, archive: archive, store: store, turn: turnstile{make(chan struct{}), make(chan struct{})}, attempts: make(chan *lastword.Attempt), leave: make(chan error)}
	s.server = server.New(server.Config{Store: store, Archive: archive, Judge: judge.New(problems, languages, nil), Problems: problems, Languages: languages, SandboxMode: "userns",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "v0.1.0"})
	worker := lastword.NewWorker(store, lastword.WorkerOptions{Slots: 1, Source: s.turn, Label: "judge"})
	lastword.Handle(worker, judge.TaskKind, func(ctx context.Context, a *lastword.Attempt, _ struct{}) (any, error) {
		select {
		case s.attempts <- a:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case err := <-s.leave:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	running.Go(func() { _ = s.server.Run(ctx) })
	s.http = httptest.NewServer(s.server.Handler())
	t.Cleanup(func() {
		stop()
		running.Wait()
		s.http.Close()
	})
	s.idle()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// idle waits until the worker waits for work, or has found some.
func (s *stage) idle() {
	s.t.Helper()
	select {
	case <-s.turn.idle:
	case s.next = <-s.attempts:
	case <-time.After(patience):
		s.t.Fatal("the worker neither works nor waits")
	}
}

// claim lets the worker take what is there.
func (s *stage) claim() *lastword.Attempt {
	s.t.Helper()
	if a := s.next; a != nil {
		s.next = nil
		return a
	}
	s.turn.open <- struct{}{}
	select {
	case a := <-s.attempts:
		return a
	case <-time.After(patience):
		s.t.Fatal("nothing was claimed")
	}
	return nil
}

// end lets the handler of the attempt that was claimed return what recording its result gave.
func (s *stage) end(recorded error) {
	s.t.Helper()
	s.leave <- recorded
	s.idle()
}

func (s *stage) record(a *lastword.Attempt, result judge.Result) error {
	result.ProblemHash = strings.Repeat("5ae1", 16)
	return s.archive.Record(s.t.Context(), a, result)
}

func accepted() judge.Result {
	tests := []judge.TestResult{{Name: "sample/1", Verdict: judge.Accepted, Time: 21 * time.Millisecond, Memory: 9 << 20}, {Name: "secret/01-zero", Verdict: judge.Accepted, Time: 24 * time.Millisecond, Memory: 9300 << 10}}
	return judge.Result{Verdict: judge.Accepted, Time: 24 * time.Millisecond, Memory: 9300 << 10, Tests: tests}
}

func wrong() judge.Result {
	r := accepted()
	r.Verdict, r.Test, r.Message = judge.WrongAnswer, "secret/01-zero", "line 1, word 1: \"4\" where \"0\" is expected\n<script>window.hacked=1</script>\"><img src=x onerror=hacked=1>"
	r.Tests[1].Verdict, r.Tests[1].Message = judge.WrongAnswer, r.Message
	return r
}

// One submission's life on the page, without one reload: queued, compiling, a test, a verdict, a rejudge, a refused write, the new
// verdict.
func TestPage(t *testing.T) {
	s, b := newStage(t), newBrowser(t)
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.http.URL))
	b.until(`document.getElementById("live").innerText.includes("live")`)
	b.screenshot("0-empty", 1280, "light")
	b.script(`window.marker = "never reloaded"`)
	b.refusedInPlace()
	b.do(chromedp.SendKeys(chromedp.CSS(`textarea[name="source"]`), "print(sum(map(int, input().split())))"))
	b.key(kb.Enter, chromedp.ModifierCtrl)
	b.row(1, "queued")
	b.opened("No worker has claimed it yet.")
	s.firstVerdict(b)
	s.rejudged(b)
	if got := b.eval("window.marker"); got != "never reloaded" {
		t.Fatal("the page was loaded again:", got)
	}
	b.sameAfterReload()
	s.hostile(b)
	b.keyboard()
	b.otherPlaces(s.http.URL)
	b.noFaults()
	s.reconnects(b)
}

// refusedInPlace submits nothing and reads the server's sentence.
func (b *browser) refusedInPlace() {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#submit-form .act button")))
	b.until(`document.getElementById("submit-answer").innerText === "the source is empty: send a program"`)
	if got := b.eval(`document.querySelector('select[name="language"] option:disabled').textContent`); got != "C: /usr/bin/gcc is not installed: install it to judge C" {
		b.t.Error(got)
	}
	// Chromium logs each answer of 400 and above; this one was wanted.
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 1 {
		b.t.Error(b.faults)
	}
	b.faults = nil
}

func (s *stage) firstVerdict(b *browser) {
	s.t.Helper()
	a := s.claim()
	for _, step := range []string{"compiling", "test 1 of 2"} {
		must(s.t, a.Progress(s.t.Context(), step))
		b.row(1, step)
	}
	b.opened("Rejudge opens generation 2 and fences the running attempt")
	b.screenshot("1-running", 1280, "light")
	must(s.t, s.record(a, accepted()))
	s.end(nil)
	b.row(1, "AC accepted", "24 ms", "9.1 MiB")
	b.opened("secret/01-zero")
	b.until(`document.getElementById("announce").textContent === "Submission 1, generation 1: AC accepted"`)
}

// rejudged rejudges twice: the attempt of generation 2 is overtaken by generation 3, and its verdict is refused.
func (s *stage) rejudged(b *browser) {
	s.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(`.rejudge input[name="reason"]`), "the answers of test 2 were wrong"), chromedp.Click(chromedp.CSS(".rejudge .act button")))
	b.opened("generation 1 → 2")
	b.row(1, "1 → 2", "queued")
	if got := b.eval(`document.querySelector("tr.row .c-state s").textContent`); got != "AC" {
		s.t.Error("the verdict before is not struck:", got)
	}
	stale := s.claim()
	must(s.t, stale.Progress(s.t.Context(), "test 2 of 2"))
	b.row(1, "test 2 of 2")
	b.until(`document.querySelector('.rejudge').dataset.generation === "2"`)
	b.do(chromedp.Click(chromedp.CSS(".rejudge .act button")))
	b.opened("generation 2 → 3")
	refused := s.record(stale, accepted())
	if !errors.Is(refused, lastword.ErrFenced) {
		s.t.Fatal("the stale verdict was not refused:", refused)
	}
	must(s.t, s.store.FlushRefusals(s.t.Context()))
	b.row(1, "2 → 3", "2 ✕ 3")
	b.opened("worker-2 tried to write to submission 1 as generation 2; generation 3 had begun ")
	b.screenshot("2-refused", 1280, "light")
	s.end(refused)
	a := s.claim()
	must(s.t, s.record(a, wrong()))
	s.end(nil)
	b.row(1, "WA wrong answer", "2 ✕ 3")
	b.opened("line 1, word 1")
}

// sameAfterReload compares what the script made of the row with what the server makes of it.
func (b *browser) sameAfterReload() {
	b.t.Helper()
	const read = `document.querySelector("tr.row").outerHTML.replace(/<time[^>]*>[^<]*/, "").replace(/ (is-open|changed)/g, "").replace(/aria-expanded="[a-z]*"/, "")`
	patched := b.eval(read)
	b.do(chromedp.Reload())
	if served := b.eval(read); strings.ReplaceAll(served, "\n", "") != patched {
		b.t.Errorf("served:\n%s\npatched:\n%s", served, patched)
	}
}

// hostile shows what strangers send, and takes the pictures.
func (s *stage) hostile(b *browser) {
	s.t.Helper()
	source := "# </pre><script>window.hacked=1</script>\nimport sys\n\ndef main():\n    a, b = map(int, sys.stdin.read().split())\n    print(a + b)  # " + strings.Repeat("long", 60) + "\n\nmain()\n"
	for i, name := range []string{`"><img src=x onerror=hacked=1>.py`, "solution_with_a_very_long_name_that_does_not_end_where_it_should.py", "sum.py"} {
		_, err := s.archive.Submit(s.t.Context(), judge.Submission{Problem: []string{"sum", "average"}[i%2], Language: "python", Filename: name, Source: []byte(source)})
		must(s.t, err)
	}
	for _, result := range []judge.Result{wrong(), {Verdict: judge.CompileError, Message: "main.py:3: SyntaxError: <script>window.hacked=1</script>"}} {
		a := s.claim()
		must(s.t, s.record(a, result))
		s.end(nil)
		b.row(a.ID(), string(result.Verdict))
	}
	b.row(4, "running")
	b.do(chromedp.Click(chromedp.CSS(`tr.row[data-id="1"] .c-problem`)))
	b.opened("2 ✕ 3")
	b.screenshot("3-light", 1280, "light")
	b.screenshot("4-dark", 1280, "dark")
	b.screenshot("5-phone", 390, "light")
	b.do(chromedp.Click(chromedp.CSS(`tr.row[data-id="1"] .open`)), chromedp.Click(chromedp.CSS(`tr.row[data-id="2"] .open`)))
	b.opened("hacked=1")
	b.screenshot("6-phone-hostile", 390, "dark")
	b.do(chromedp.EmulateViewport(1280, 900))
	if got := b.eval(`[window.hacked, document.querySelectorAll("img, main script, [onerror]").length]`); got != ",0" {
		s.t.Error("the page ran what was submitted:", got)
	}
}

func (b *browser) keyboard() {
	b.t.Helper()
	b.script(`document.activeElement.blur(); for (const open of document.querySelectorAll("tr.is-open .open")) open.click(); document.activeElement.blur()`)
	b.key("/")
	b.until(`document.activeElement.id === "q"`)
	b.script(`document.getElementById("q").value = ""`) // the protocol types the slash whatever became of its keydown
	b.key("wa py")
	b.until(`document.getElementById("count").textContent === "2 of 4" && location.search === "?q=wa+py"`)
	b.key("zzz")
	b.until(`!document.getElementById("none").hidden`)
	b.script(`const q = document.getElementById("q"); q.value = ""; q.dispatchEvent(new Event("input"))`)
	b.key(kb.Escape)
	b.until(`location.search === "" && document.getElementById("count").textContent === "4"`)
	b.key("jjk")
	b.until(`document.activeElement.textContent === "4"`)
	b.key(kb.Enter)
	b.until(`document.querySelector("tr.opened .detail")`)
	b.key(kb.Escape)
	b.until(`!document.querySelector("tr.opened")`)
	b.key("?")
	b.until(`document.getElementById("keys").open`)
	b.key(kb.Escape)
	b.until(`!document.getElementById("keys").open`)
	b.do(chromedp.Click(chromedp.CSS("#theme")), chromedp.Click(chromedp.CSS("#theme")))
	b.until(`document.documentElement.dataset.theme === "dark" && getComputedStyle(document.body).backgroundColor === "rgb(20, 23, 27)"`)
	b.do(chromedp.Click(chromedp.CSS("#theme")))
}

func (b *browser) otherPlaces(url string) {
	b.t.Helper()
	for i, path := range []string{"problems", "refusals", "status", "submissions/1"} {
		b.do(chromedp.Navigate(url + "/" + path))
		b.until(`document.getElementById("live").innerText.includes("live")`)
		name := fmt.Sprintf("%d-%s", 7+i, strings.ReplaceAll(path, "/", "-"))
		b.screenshot(name, 1280, "light")
		b.screenshot(name+"-phone", 390, "light")
	}
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
}

// reconnects cuts all connections: the page says so and comes back with what it has missed.
func (s *stage) reconnects(b *browser) {
	s.t.Helper()
	b.until(`document.getElementById("live").innerText.includes("live")`)
	b.script(`const sign = document.getElementById("live"); window.signs = []; new MutationObserver(() => signs.push(sign.textContent)).observe(sign, { childList: true })`)
	s.http.CloseClientConnections()
	a := s.claim()
	must(s.t, s.record(a, accepted()))
	s.end(nil)
	b.row(a.ID(), "AC accepted")
	b.until(`document.getElementById("live").innerText.includes("live")`)
	if got := b.eval(`signs.join()`); got != "▲ connection lost, trying again,● live" {
		s.t.Error(got)
	}
}
