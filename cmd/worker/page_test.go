package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// These constants are JavaScript expressions about the page.
const (
	// enginesOverlap is true if bars of two batches on two engines overlap in time.
	enginesOverlap = `(() => {
		const bars = millraceTimeline.drawn().filter((b) => !b.row.startsWith("lane"));
		return bars.some((a) => bars.some((b) => a.row !== b.row && a.batch !== b.batch && a.start < b.end && b.start < a.end));
	})()`

	// middleOfABar returns the middle of the bar of a batch's compute stage, in pixels of the window, and the batch's number. The middle is
	// visible, although later bars may cover earlier bars.
	middleOfABar = `(() => {
		const canvas = document.querySelector("canvas");
		canvas.scrollIntoView({ block: "center" });
		const bars = millraceTimeline.drawn().filter((b) => b.row === "compute");
		const middle = (b) => ({ x: b.x + b.width / 2, y: b.y + b.height / 2 });
		const covers = (b, at) => b.x <= at.x && at.x <= b.x + b.width && b.y <= at.y && at.y <= b.y + b.height;
		const visible = bars.filter((b, i) => !bars.slice(i + 1).some((later) => covers(later, middle(b))));
		const widest = visible.sort((a, b) => b.width - a.width)[0];
		const box = canvas.getBoundingClientRect();
		return [box.x + middle(widest).x, box.y + middle(widest).y, widest.batch];
	})()`

	// overflow lists the elements that are wider than the window, except scrollable elements.
	overflow = `[...document.querySelectorAll("body *")]
		.filter((e) => e.checkVisibility() && !e.closest(".scroll") && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5))
		.map((e) => e.tagName + "." + e.className).concat(document.documentElement.scrollWidth > innerWidth ? ["the document"] : [])`
)

// demonstration starts a demo with the variables env and opens its timeline page in a browser. The demo runs until the
// test ends.
func demonstration(t *testing.T, env ...string) *tab {
	t.Helper()
	browser(t)
	p := start(t, append(env, "MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_LOG_LEVEL=info", "MILLRACE_LOG_FORMAT=json",
		"MILLRACE_OPERATORS=crc32c,minhash?hashes=16", "TMPDIR="+t.TempDir()), "demo", "--payloads", "10000000")
	t.Cleanup(func() { p.terminate() })
	p.await("serving debug pages")
	return open(t, address(t, p, "serving debug pages"))
}

// TestPageShowsADemo checks the page of a running demo in both colour schemes and at two widths.
func TestPageShowsADemo(t *testing.T) {
	b := demonstration(t)
	b.await("bars of different engines overlap in time", enginesOverlap)
	b.await("figures are shown", `document.querySelector("[data-payload-rate]").textContent !== "0"`)
	b.await("it shows that the worker is live", `document.getElementById("state").dataset.state === "live"`)
	colours := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.prefers(width, scheme)
			b.await("the timeline has the window's width", `(() => { const c = document.querySelector("canvas");
				return c.width === Math.round(c.clientWidth * devicePixelRatio) && millraceTimeline.drawn().every((bar) => bar.x + bar.width <= c.clientWidth); })()`)
			if out := value[[]string](b, overflow); len(out) > 0 {
				t.Errorf("%s, %d pixels wide: these elements are wider than the window: %q", scheme, width, out)
			}
			if width == 1280 {
				b.awaitFull()
				b.picture("timeline-" + scheme + ".png")
			}
		}
		colours[scheme] = value[string](b, `getComputedStyle(document.body).backgroundColor`)
	}
	if colours["light"] == colours["dark"] {
		t.Errorf("the page is %s in light and in dark", colours["light"])
	}
	zoom(b)
	b.wantNoProblems()
}

// zoom selects the longest and then the shortest time window.
func zoom(b *tab) {
	b.t.Helper()
	for range 12 {
		b.do(chromedp.Click("#zoom-out", chromedp.ByQuery))
	}
	b.await("the longest window", `document.getElementById("zoom-text").textContent === "10 s" && millraceTimeline.view.window === 10e9`)
	for range 12 {
		b.do(chromedp.Click("#zoom-in", chromedp.ByQuery))
	}
	b.await("the shortest window", `document.getElementById("zoom-text").textContent === "2 ms"`)
	b.await("bars within it", `(() => { const bars = millraceTimeline.drawn(), { end, window } = millraceTimeline.view;
		return bars.length > 0 && bars.every((b) => b.end >= end - window && b.start <= end); })()`)
}

// TestPageOpensABatch opens a batch with the pointer and with the keyboard.
func TestPageOpensABatch(t *testing.T) {
	b := demonstration(t)
	b.await("batches are drawn", enginesOverlap)
	b.do(chromedp.Click("#pause", chromedp.ByQuery))
	b.await("it shows that it is paused", `document.getElementById("state").dataset.state === "paused"`)
	at := value[[]float64](b, middleOfABar)
	b.do(chromedp.MouseClickXY(at[0], at[1]), chromedp.WaitVisible("#detail", chromedp.ByQuery))
	title := strings.ReplaceAll(value[string](b, `document.getElementById("detail-title").textContent`), ",", "")
	if want := fmt.Sprintf("Batch %.0f", at[2]); title != want {
		t.Errorf("a click on %s opened %s", want, title)
	}
	stages := value[[]string](b, `[...document.querySelectorAll("#detail-stages li")].map((line) => line.dataset.stage + (/[0-9] (s|ms|µs|ns)/.test(line.querySelector("b").textContent) ? " took time" : ""))`)
	if want := "fill took time, copy_in took time, compute took time, copy_out took time, publish took time, settle took time"; strings.Join(stages, ", ") != want {
		t.Errorf("the stages are %q", stages)
	}
	facts := value[string](b, `document.getElementById("detail-facts").textContent`)
	for _, fact := range []string{"payloads", "of 8,192", "bytes", "of 4 MiB", "closed by"} {
		if !strings.Contains(facts, fact) {
			t.Errorf("the facts do not name %q: %s", fact, facts)
		}
	}
	for _, width := range []int64{1280, 390} {
		b.prefers(width, "light")
		if out := value[[]string](b, overflow); len(out) > 0 {
			t.Errorf("with a batch open, %d pixels wide: these elements are wider than the window: %q", width, out)
		}
	}
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible("#detail", chromedp.ByQuery))
	b.do(chromedp.Focus("canvas", chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitVisible("#detail", chromedp.ByQuery), chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible("#detail", chromedp.ByQuery))
	if focus := value[string](b, `document.activeElement.tagName`); focus != "CANVAS" {
		t.Errorf("closing the batch leaves the focus on %s", focus)
	}
	seen := value[int](b, `millraceTimeline.model.cursor`)
	b.do(chromedp.Click("#pause", chromedp.ByQuery))
	b.await("it goes on", fmt.Sprintf(`millraceTimeline.model.cursor > %d && document.getElementById("state").dataset.state === "live"`, seen))
	b.wantNoProblems()
}

// TestPageOfAnIdleWorker checks the page before the first batch, after the last one, after the worker's end, and with
// its successor.
func TestPageOfAnIdleWorker(t *testing.T) {
	browser(t)
	s := serve(t)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DEBUG_ADDR=" + freeAddr(),
		"MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json"}
	p := start(t, env)
	p.await(`"msg":"working"`)
	b := open(t, address(t, p, "serving debug pages"))
	b.await("it explains that there is no batch", `document.getElementById("empty").checkVisibility() && document.getElementById("state-text").textContent === "Waiting for the first batch"`)
	version := strings.Fields(strings.NewReplacer("millrace", "", "commit", "", "unknown", "").Replace(strings.Join(strings.Split(call(t, nil, "version").out, "\n")[2:4], " ")))
	if got := strings.Fields(value[string](b, `document.querySelector(".build").textContent`)); !slices.Equal(got, version) {
		t.Errorf("the page shows %q, but worker version prints %q", got, version)
	}
	if _, err := client(t, s).Publish(context.Background(), "ingest.test", []byte("payload")); err != nil {
		t.Fatal(err)
	}
	b.await("the batch is drawn", `millraceTimeline.drawn().some((b) => b.batch === 1 && b.row === "compute") && !document.getElementById("empty").checkVisibility()`)
	b.await("a CPU has no engines that could overlap", `[...document.querySelectorAll("#devices .tile h3")].filter((h) => h.checkVisibility()).map((h) => h.innerText).join() === "Throughput,Busy,Batch fill,Scratch,Lanes"
		&& !document.querySelector("[data-share=several]").checkVisibility()`)
	b.await("it shows since when the worker is idle", `/^Idle since [0-2][0-9]:[0-5][0-9]:[0-5][0-9]$/.test(document.getElementById("state-text").textContent)`)
	b.await("it keeps showing the last batch", `millraceTimeline.drawn().some((b) => b.batch === 1) && document.querySelector("[data-pace]").textContent === "the last busy moment"`)
	b.wantNoProblems()
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	b.await("it shows that the worker is gone", `document.getElementById("state").dataset.state === "lost" && /lost; trying again/.test(document.getElementById("state-text").textContent)`)
	start(t, env).await(`"msg":"working"`)
	b.await("it starts again with another worker", `millraceTimeline.model.batches.length === 0 && document.getElementById("state-text").textContent === "Waiting for the first batch"`)
}

// TestPageOfSeveralDevices checks that each device has a timeline. A batch that is slow to publish shows its stages,
// and a failed batch shows its error.
func TestPageOfSeveralDevices(t *testing.T) {
	browser(t)
	line := telemetry.NewTimeline(10)
	epoch := time.Now().Add(-time.Minute)
	for _, id := range []string{"GPU-1", "GPU-2"} {
		line.AddDevice(id, "a GPU", epoch)
		r := &inflight.Record{Record: streams.Record{Device: id, Batch: 1, Payloads: 3, Bytes: 1 << 20, Closed: streams.ClosedByLinger}}
		at := time.Second
		takes := func(length time.Duration) streams.Span {
			at += length
			return streams.Span{Start: at - length, End: at}
		}
		r.Stages = [streams.NumStages]streams.Span{takes(100 * time.Microsecond), takes(time.Millisecond), takes(time.Millisecond), takes(time.Millisecond)}
		r.Publish, r.Settle = takes(500*time.Millisecond), takes(time.Millisecond)
		line.BatchDone(r)
	}
	line.BatchDone(&inflight.Record{Record: streams.Record{Device: "GPU-2", Batch: 2, Lane: 1, Err: errors.New("no <b>room</b>"),
		Stages: [streams.NumStages]streams.Span{streams.Fill: {Start: time.Second, End: time.Second + time.Millisecond}}}})
	server := httptest.NewServer(telemetry.DebugHandler(telemetry.Debug{
		Timeline: line, Bounds: telemetry.LiveBounds{Lanes: 2, Payloads: 10, Bytes: 4 << 20},
	}))
	t.Cleanup(server.Close)
	b := open(t, server.URL)
	b.await("the work of both devices is drawn", `[0, 1].every((device) => millraceTimeline.drawn().some((b) => b.device === device && b.batch === 1 && b.row === "compute"))`)
	b.await("each device is named and both are added up", `[...document.querySelectorAll("[data-name]")].map((e) => e.textContent).join("; ") === "a GPU, 1; a GPU, 2" &&
		document.getElementById("everything").textContent.startsWith("2 devices together")`)
	b.do(chromedp.Click(`//tbody/tr[contains(., "failed")]//button`, chromedp.BySearch), chromedp.WaitVisible("#detail-error", chromedp.ByQuery))
	got := value[[]string](b, `["detail-error", "detail-title", "detail-where"].map((id) => document.getElementById(id).textContent)`)
	if want := "no <b>room</b>; Batch 2; lane 1 of a GPU, 2"; strings.Join(got, "; ") != want {
		t.Errorf("the failed batch is shown as %q, want %s", got, want)
	}
	if never := value[int](b, `document.querySelectorAll("#detail-stages .never").length`); never != 5 {
		t.Errorf("%d stages are shown as not run, want 5", never)
	}
	b.wantNoProblems()
}
