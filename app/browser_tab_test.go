package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab, with everything that went wrong in it.
type browser struct {
	t      *testing.T
	ctx    context.Context
	mu     sync.Mutex
	faults []string
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no Chromium: install the package chromium")
	}
	t.Skip("no Chromium: install the package chromium")
	return ""
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir())}
	for _, flag := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	b := &browser{t: t}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.fault(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			b.fault(fmt.Sprintf("console.%s: %+v", e.Type, e.Args))
		case *cdplog.EventEntryAdded: // also what the content security policy forbids
			b.fault(fmt.Sprintf("log: %+v", e.Entry))
		}
	}))
	t.Cleanup(cancel)
	b.ctx = ctx
	must(t, chromedp.Do(ctx)) // without a time: the browser would end with it
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
		return err
	}))
	return b
}

func (b *browser) fault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, text)
}

func (b *browser) noFaults() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Error(fault)
	}
	b.faults = nil
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	must(b.t, chromedp.Do(ctx, steps...))
}

// eval returns the value of an expression as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	must(b.t, err)
	return out
}

// until waits, without polling, for a condition on the document.
func (b *browser) until(condition string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	script := `new Promise((done) => {
		const is = () => { try { return ` + condition + ` } catch { return false } };
		if (is()) return done(true);
		const seen = new MutationObserver(() => { if (is()) { seen.disconnect(); done(true); } });
		seen.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
	})`
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("%s: %v; the page:\n%s", condition, err, b.eval("document.body.innerText"))
	}
}

func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// row waits until a submission's row holds all the texts.
func (b *browser) row(id int64, texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf(`document.querySelector('tr.row[data-id="%d"]').innerText.includes(%s)`, id, quoted(text)))
	}
}

// opened waits until the opened row holds the text.
func (b *browser) opened(text string) {
	b.t.Helper()
	b.until(`document.querySelector('.detail').innerText.includes(` + quoted(text) + `)`)
}

func (b *browser) screenshot(name string, width int64, scheme string) {
	b.t.Helper()
	dir := os.Getenv("LASTWORD_SCREENSHOTS")
	if dir == "" {
		dir = b.t.TempDir()
	}
	b.do(chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media)
		return err
	}))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	must(b.t, err)
	if got := b.eval(`Math.max(document.documentElement.scrollWidth - innerWidth, 0)`); got != "0" {
		b.t.Errorf("%s scrolls sideways by %s", name, got)
	}
	must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

func (b *browser) key(keys string, modifiers ...chromedp.Modifier) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

// script runs statements.
func (b *browser) script(statements string) {
	b.t.Helper()
	b.eval("(() => {" + statements + "})()")
}
