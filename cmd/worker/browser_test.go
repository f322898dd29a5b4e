package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in a headless browser.
type tab struct {
	t        *testing.T
	ctx      context.Context
	mu       sync.Mutex
	problems []string // exceptions and console messages of the page
}

// browser returns the path of Chromium. The test skips without MILLRACE_PAGE=1. With that variable, it fails if
// Chromium is missing.
func browser(t *testing.T) string {
	t.Helper()
	programs(t)
	if !strings.HasPrefix(t.Name(), "TestPage") && !strings.HasPrefix(t.Name(), "TestPicture") {
		t.Fatal("make page runs only tests whose names begin with TestPage or TestPicture")
	}
	if os.Getenv("MILLRACE_PAGE") != "1" {
		t.Skip("SKIPPED: THE TIMELINE PAGE IS TESTED BY make page")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium on the path: install it (Debian: apt-get install chromium)")
	return ""
}

// chromium is the browser that all tests of the package share. Each test opens its own tab.
var chromium struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
	err  error
}

// startChromium starts the browser. The browser paints in its own process, because emulating a GPU would take most of
// the time.
func startChromium(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-software-rasterizer", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox doesn't work as root
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	chromium.end = end
	chromium.ctx, _ = chromedp.NewContext(allocator) // the context ends with the allocator
	chromium.err = chromedp.Run(chromium.ctx)
}

// endChromium stops the browser, if a test has started it.
func endChromium() {
	if chromium.ctx != nil {
		_ = chromedp.Cancel(chromium.ctx) // the tests are over, so an error is irrelevant
		chromium.end()
	}
}

// fewFrames makes a page draw 10 times a second, because drawing 60 times would dominate the run time.
const fewFrames = `requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 100)`

// open opens a page and records its problems.
func open(t *testing.T, url string) *tab {
	t.Helper()
	path := browser(t)
	if chromium.once.Do(func() { startChromium(path) }); chromium.err != nil {
		t.Fatal(chromium.err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.handle)
	b.do(log.Enable(), runtime.Enable(), chromedp.EmulateViewport(1280, 900), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(fewFrames).Do(ctx)
		return err
	}), chromedp.Navigate(url))
	return b
}

// handle records exceptions, console messages, and browser errors. Examples of errors are a script that the page's
// policy forbids and an unreachable address.
func (t *tab) handle(event any) {
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
		t.mu.Lock()
		defer t.mu.Unlock()
		t.problems = append(t.problems, problem)
	}
}

func (t *tab) do(actions ...chromedp.Action) {
	t.t.Helper()
	if err := chromedp.Run(t.ctx, actions...); err != nil {
		t.t.Fatalf("%v; the page's problems: %q", err, t.collected())
	}
}

// await waits until an expression is true on the page.
func (t *tab) await(what, expression string) {
	t.t.Helper()
	if err := chromedp.Run(t.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience/2))); err != nil {
		t.t.Fatalf("waiting until %s: %v; the page's problems: %q", what, err, t.collected())
	}
}

// value returns the value of an expression on the page.
func value[T any](b *tab, expression string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v))
	return v
}

// prefers sets the page's width and colour scheme.
func (t *tab) prefers(width int64, scheme string) {
	t.t.Helper()
	t.do(chromedp.EmulateViewport(width, 900), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
	}))
}

// settled waits for an expression to become true on the page before a screenshot.
func (t *tab) settled(what, expression string) {
	t.t.Helper()
	if os.Getenv(screenshots) != "" {
		t.await(what, expression)
	}
}

// awaitFull waits until batches fill the visible time and the page has history, before a screenshot.
func (t *tab) awaitFull() {
	t.t.Helper()
	t.settled("the window is full of batches", `(() => { const bars = millraceTimeline.drawn(), { end, window } = millraceTimeline.view;
		return Math.min(...bars.map((bar) => bar.start)) < end - 0.95 * window; })()`)
	t.settled("there is history", `document.querySelector("[data-spark] polyline").points.length > 20 && document.querySelectorAll("#latest-rows tr").length > 4`)
}

func (t *tab) collected() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.problems)
}

// wantNoProblems fails the test if the page had a problem.
func (t *tab) wantNoProblems() {
	t.t.Helper()
	for _, problem := range t.collected() {
		t.t.Errorf("the page: %s", problem)
	}
}
