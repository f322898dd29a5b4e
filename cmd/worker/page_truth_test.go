package main

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// These constants are JavaScript expressions about the worker's state on the page.
const (
	pageState = `document.getElementById("state").dataset.state`
	stateText = `document.getElementById("state").innerText.replace(/\s+/g, " ")`
	red       = `getComputedStyle(document.getElementById("state")).color === getComputedStyle(document.getElementById("trouble-title")).color`
)

// pages serves the debug pages of d and opens the timeline page.
func pages(t *testing.T, d telemetry.Debug) *tab {
	t.Helper()
	browser(t)
	server := httptest.NewServer(telemetry.DebugHandler(d))
	t.Cleanup(server.Close)
	return open(t, server.URL)
}

// batchOf returns a batch. Each stage begins at one time of edges and ends at the next one, in milliseconds.
func batchOf(number uint64, lane int, edges ...int) *inflight.Record {
	r := &inflight.Record{Record: streams.Record{Device: "GPU-1", Batch: number, Lane: lane, Payloads: 3, Bytes: 1 << 20, Scratch: 5 << 20, Closed: streams.ClosedByLinger}}
	span := func(i int) streams.Span {
		return streams.Span{Start: time.Duration(edges[i]) * time.Millisecond, End: time.Duration(edges[i+1]) * time.Millisecond}
	}
	r.Stages = [streams.NumStages]streams.Span{span(0), span(1), span(2), span(3)}
	r.Publish, r.Settle = span(4), span(5)
	return r
}

// lineOf returns the timeline of one GPU whose clock started an hour ago.
func lineOf(records ...*inflight.Record) *telemetry.Timeline {
	return lineSince(time.Now().Add(-time.Hour), records...)
}

// lineSince is like lineOf, but the GPU's clock started at epoch.
func lineSince(epoch time.Time, records ...*inflight.Record) *telemetry.Timeline {
	line := telemetry.NewTimeline(1000)
	line.AddDevice("GPU-1", "a GPU", epoch)
	for _, r := range records {
		line.BatchDone(r)
	}
	return line
}

// TestPageWithoutNATS checks that the page turns red when the worker loses its server, even with a paused timeline. The page returns to
// normal once the server is back.
func TestPageWithoutNATS(t *testing.T) {
	s := serve(t)
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DEBUG_ADDR=127.0.0.1:0",
		"MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	browser(t)
	b := open(t, address(t, p, "serving debug pages"))
	b.await("it waits for the first batch", pageState+` === "idle"`)
	if _, err := client(t, s).Publish(t.Context(), "ingest.test", []byte("payload")); err != nil {
		t.Fatal(err)
	}
	b.await("the batch is drawn", `millraceTimeline.drawn().length > 0`)
	b.do(chromedp.Click("#pause", chromedp.ByQuery))
	b.await("it is paused", pageState+` === "paused"`)
	s.Close()
	b.await("the header is red and says since when", pageState+` === "bad" && `+red+` && /^Not connected to NATS since [0-9]{2}:[0-9]{2}:[0-9]{2}/.test(`+stateText+`)`)
	if banner := value[string](b, `document.getElementById("trouble").checkVisibility() && document.getElementById("trouble").innerText`); !strings.Contains(banner, s.URL()) ||
		!strings.Contains(banner, "Not connected to NATS since") || !strings.Contains(banner, "reconnects by itself") {
		t.Errorf("the banner is %q", banner)
	}
	b.do(chromedp.Click("#pause", chromedp.ByQuery))
	b.await("it stays red", pageState+` === "bad" && !millraceTimeline.view.paused`)
	b.await("the window's title says so", `document.title.includes("Not connected to NATS")`)
	b.wantNoProblems()
}

// TestPageReportsOtherTrouble checks the page after a device failure, during a start that waits, and after recovery.
func TestPageReportsOtherTrouble(t *testing.T) {
	var now atomic.Pointer[error]
	set := func(err error) { now.Store(&err) }
	set(nil)
	b := pages(t, telemetry.Debug{Timeline: lineOf(), Watch: telemetry.NewWatch(func() error { return *now.Load() }, nil)})
	b.await("all is well", pageState+` === "idle" && !document.getElementById("trouble").checkVisibility()`)
	set(errors.New("GPU-1: <b>device</b> lost"))
	b.await("the reason is shown", pageState+` === "bad" && document.getElementById("trouble-advice").textContent.startsWith("GPU-1: <b>device</b> lost.")`)
	set(fmt.Errorf("%w: waiting for NATS: connection refused", telemetry.NewHealth(telemetry.HealthOptions{}).Ready()))
	b.await("a start that waits is red too", pageState+` === "bad" && document.getElementById("trouble-advice").textContent.startsWith("starting: waiting for NATS: connection refused.")
		&& !document.getElementById("empty-text").checkVisibility()`)
	set(nil)
	b.await("all is well again", pageState+` === "idle" && !document.getElementById("trouble").checkVisibility()`)
	b.wantNoProblems()
}

// TestPageSaysHowLateItIs checks that the header shows the timeline's delay in slow motion, and while batches in flight make no progress.
func TestPageSaysHowLateItIs(t *testing.T) {
	epoch := time.Now().Add(-time.Hour)
	line := lineSince(epoch, batchOf(1, 0, 0, 1, 2, 3, 4, 5, 6))
	var inFlight atomic.Int64
	inFlight.Store(2)
	d := telemetry.Debug{Timeline: line, Bounds: telemetry.LiveBounds{Lanes: 2, Payloads: 10, Bytes: 4 << 20}, Stats: func() []streams.Stats {
		return []streams.Stats{{Device: "GPU-1", Lanes: streams.LaneCounts{InFlight: int(inFlight.Load())}, Uptime: time.Minute}}
	}}
	b := pages(t, d)
	b.await("it says that the batches in flight do not finish", pageState+` === "waiting" && /^No batch has finished since [0-9:]{8} 2 in flight$/.test(`+stateText+`)`)
	inFlight.Store(0)
	b.await("without batches in flight it is idle", pageState+` === "idle"`)

	done, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := uint64(2); ; n++ {
			select {
			case <-tick.C:
				at := int(time.Since(epoch).Milliseconds())
				line.BatchDone(batchOf(n, int(n)%2, at-7, at-6, at-5, at-3, at-2, at-1, at))
			case <-done:
				return
			}
		}
	}()
	b.await("it says that it is slow motion, and how far behind", pageState+` === "live" && /^Live, in slow motion [0-9]+ s behind$/.test(`+stateText+`)`)
	b.await("the timeline says it too", `/^slow motion, 1 : [0-9,]+, .* behind$/.test(document.querySelector("[data-pace]").textContent)`)
	b.wantNoProblems()
}

// TestPageWithoutAGPU checks the banner for a worker that computes on the CPU. A worker with a GPU has no banner.
func TestPageWithoutAGPU(t *testing.T) {
	banner := `document.getElementById("on-cpu").checkVisibility() ? document.getElementById("on-cpu").innerText : "none"`
	for cpu, want := range map[telemetry.CPU]string{telemetry.CPUFallback: "found none", telemetry.NotOnCPU: "none"} {
		b := pages(t, telemetry.Debug{Timeline: lineOf(), CPU: cpu})
		b.await("it shows the worker", pageState+` === "idle"`)
		got := value[string](b, banner)
		if !strings.Contains(got, want) || (cpu != telemetry.NotOnCPU) != strings.Contains(got, "No GPU is used") {
			t.Errorf("%q: the banner is %q, want it to say %q", cpu, got, want)
		}
	}
}

// TestPageNamesTheConsumerThatHoldsTheFloor covers an input stream that retains inputs for a consumer, for another reason, or not at all.
func TestPageNamesTheConsumerThatHoldsTheFloor(t *testing.T) {
	t.Parallel()
	var kept atomic.Pointer[telemetry.Kept]
	kept.Store(&telemetry.Kept{})
	b := pages(t, telemetry.Debug{Timeline: lineOf(), Feed: telemetry.Feed{Server: "nats://n:4222", Stream: "INGEST", Subjects: []string{"ingest.>"}}, Kept: func() telemetry.Kept { return *kept.Load() }})
	b.await("nothing is kept", `document.getElementById("feed-stream").checkVisibility() && !document.getElementById("feed-kept").checkVisibility()`)
	kept.Store(&telemetry.Kept{Consumer: "forgotten", Inputs: 12345})
	b.await("the consumer is named", `document.getElementById("feed-kept").checkVisibility() && document.getElementById("feed-kept-name").checkVisibility() &&
		document.getElementById("feed-kept").textContent === "the last 12,345, which consumer forgotten has not acknowledged from the first on"`)
	kept.Store(&telemetry.Kept{Why: "missing"})
	b.await("the reason is named", `document.getElementById("feed-kept").textContent === "processed inputs stay (missing): run worker check"`)
	b.wantNoProblems()
}
