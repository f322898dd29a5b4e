package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in a headless browser.
type tab struct {
	t        *testing.T
	ctx      context.Context
	mu       sync.Mutex
	problems []string // what the page threw and what the console was told
}

// browser is the path of a Chromium, without which the test cannot run.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "NO CHROMIUM ON THE PATH, SO THE TIMELINE PAGE IS NOT TESTED: install it (Debian: apt-get install chromium)"
	if os.Getenv("MILLRACE_REQUIRE_BROWSER") == "1" {
		t.Fatal(missing)
	}
	t.Skip("SKIPPED: " + missing)
	return ""
}

// open opens a page and collects what goes wrong in it.
func open(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox cannot be had as root
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.hear)
	b.do(log.Enable(), runtime.Enable(), chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	return b
}

// hear keeps exceptions, whatever is written to the console, and what the browser itself complains of: a script that
// the page's policy does not allow, an address that does not answer.
func (b *tab) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console.%s", e.Type)
		for _, arg := range e.Args {
			problem += " " + string(arg.Value)
		}
	case *log.EventEntryAdded:
		problem = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	}
	if problem != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, problem)
	}
}

// do carries actions out.
func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page's problems: %q", err, b.heard())
	}
}

// await returns once an expression is true in the page.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience/2))); err != nil {
		b.t.Fatalf("waiting until %s: %v; the page's problems: %q", what, err, b.heard())
	}
}

// value reads an expression's value.
func value[T any](b *tab, expression string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v))
	return v
}

// prefers sets the width of the page and the colours that its reader likes.
func (b *tab) prefers(width int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
	}))
}

// picture keeps what the window shows in the folder that MILLRACE_SCREENSHOTS names, if it names one: make screenshots.
func (b *tab) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("MILLRACE_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.await("the window is full of batches", `(() => { const bars = millraceTimeline.drawn(), { end, window } = millraceTimeline.view;
		return Math.min(...bars.map((bar) => bar.start)) < end - 0.95 * window; })()`)
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(folder, name), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// heard is what has gone wrong in the page so far.
func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

// quiet fails the test if anything has gone wrong in the page.
func (b *tab) quiet() {
	b.t.Helper()
	for _, problem := range b.heard() {
		b.t.Errorf("the page: %s", problem)
	}
}
