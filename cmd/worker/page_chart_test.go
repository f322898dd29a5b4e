package main

import (
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

// longest selects the longest time window.
func longest(b *tab) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`for (let i = 0; i < 12; i++) document.getElementById("zoom-out").click();
		requestAnimationFrame(() => requestAnimationFrame(() => window.painted = true))`, nil))
	b.await("the longest window", `window.painted && millraceTimeline.view.window === 10e9 && millraceTimeline.drawn().length > 0`)
}

// bounds returns the limits of batches on the given number of lanes.
func bounds(lanes int) telemetry.LiveBounds {
	return telemetry.LiveBounds{Lanes: lanes, Payloads: 10, Bytes: 4 << 20}
}

// covered lists the pairs of bars that overlap: bars in one row that share more than one pixel.
const covered = `(() => {
	const bars = millraceTimeline.drawn(), pairs = [];
	bars.forEach((a, i) => bars.slice(i + 1).forEach((b) => {
		if (a.row === b.row && Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x) > 1 && Math.min(a.y + a.height, b.y + b.height) > Math.max(a.y, b.y)) pairs.push(a.row + ": " + a.batch + " and " + b.batch);
	}));
	return pairs;
})()`

// TestPagePaintsNoBarOverAnother checks lanes with concurrent kernels, and batches that arrive out of order.
func TestPagePaintsNoBarOverAnother(t *testing.T) {
	for _, lanes := range []int{4, 8, 64} {
		var records []*inflight.Record
		for n := range 3 * lanes {
			lane, turn := n%lanes, n/lanes
			at := 2500*turn + 8*lane
			records = append(records, batchOf(uint64(n+1), lane, at, at+5, at+8, at+2300-7*lane, at+2305, at+2400, at+2420))
		}
		for i := 0; i+2 < len(records); i += 3 { // a batch is released once its results are stored
			slices.Reverse(records[i : i+3])
		}
		b := pages(t, telemetry.Debug{Timeline: lineOf(records...), Bounds: bounds(lanes)})
		b.await("batches are drawn", `millraceTimeline.drawn().length > 0`)
		longest(b)
		if over := value[[]string](b, covered); len(over) > 0 {
			t.Errorf("%d lanes: %d bars are painted over: %.300q", lanes, len(over), over)
		}
		if n := value[int](b, `new Set(millraceTimeline.drawn().filter((b) => b.row === "compute" && !b.more).map((b) => b.batch)).size`); n != len(records) {
			t.Errorf("%d lanes: %d of %d batches have a bar in the row of the kernels", lanes, n, len(records))
		}
		if out := value[[]string](b, overflow); len(out) > 0 {
			t.Errorf("%d lanes: these elements are wider than the window: %q", lanes, out)
		}
		b.wantNoProblems()
	}
}

// TestPageCountsBatchesWithoutSpace checks that a row without space for all batches shows the number of hidden batches. A user can open
// these batches.
func TestPageCountsBatchesWithoutSpace(t *testing.T) {
	var records []*inflight.Record
	for n := range 9 { // all batches are on one lane and slow to publish
		at := 100 * n
		records = append(records, batchOf(uint64(n+1), 0, at, at+20, at+40, at+60, at+80, 5000, 5010))
	}
	b := pages(t, telemetry.Debug{Timeline: lineOf(records...), Bounds: bounds(1)})
	b.await("batches are drawn", `millraceTimeline.drawn().length > 0`)
	longest(b)
	if over := value[[]string](b, covered); len(over) > 0 {
		t.Errorf("bars are painted over: %q", over)
	}
	if more := value[[]int](b, `millraceTimeline.drawn().find((b) => b.row === "lane 0" && b.more?.length > 1)?.more ?? []`); !slices.Equal(more, []int{7, 8, 9}) {
		t.Fatalf("the bar counts %v, want the batches 7, 8 and 9", more)
	}
	at := value[[]float64](b, `(() => {
		const canvas = document.querySelector("canvas");
		canvas.scrollIntoView({ block: "center" });
		const bar = millraceTimeline.drawn().find((b) => b.more?.length === 3), box = canvas.getBoundingClientRect();
		return [box.x + bar.x + bar.width / 2, box.y + bar.y + bar.height / 2];
	})()`)
	b.do(chromedp.MouseClickXY(at[0], at[1]), chromedp.WaitVisible("#detail", chromedp.ByQuery))
	detail := `["detail-title", "detail-others"].map((id) => document.getElementById(id).textContent).join(". ")`
	if got := value[string](b, detail); got != "Batch 7. At the same place: 89" {
		t.Errorf("a click shows %q", got)
	}
	b.do(chromedp.Click("#detail-others button:last-child", chromedp.ByQuery))
	if got := value[string](b, detail); got != "Batch 9. At the same place: 78" {
		t.Errorf("another click shows %q", got)
	}
	b.wantNoProblems()
}

// TestPageShowsOverlapFirst checks that the page measures the overlap, explains the colours, and draws the overlap
// large above the engines.
func TestPageShowsOverlapFirst(t *testing.T) {
	// In 10 s, two engines are busy for 3 s and all three for 0.5 s.
	line := lineOf(batchOf(1, 0, 0, 1000, 3000, 6000, 7000, 7001, 7002), batchOf(3, 2, 100, 3500, 5600, 6800, 7000, 7001, 7002),
		batchOf(2, 1, 100, 4000, 6500, 8000, 9000, 9001, 9999))
	began := time.Now().Add(-10 * time.Second)
	b := pages(t, telemetry.Debug{Timeline: line, Bounds: bounds(3), Stats: func() []streams.Stats {
		return []streams.Stats{{Device: "GPU-1", Busy: 8 * time.Second, Overlap: 6 * time.Second, Counted: 10 * time.Second, Uptime: time.Since(began)}} // one batch is in flight
	}})
	b.await("batches are drawn", `millraceTimeline.drawn().length > 0`)
	longest(b)
	if first := value[string](b, `document.querySelector("#devices .tile h3").textContent`); first != "Overlap" {
		t.Errorf("the first figure is %s", first)
	}
	b.await("no batch has completed in the last seconds", `document.querySelector("[data-busy]").textContent === "–" && document.querySelector("[data-span]").textContent === "Too few batches to tell" &&
		document.querySelector("[data-overlap-sub]").textContent === "too few batches to tell"`)
	// This column of pixels lies where two engines are busy. From the top, the strip precedes the engines.
	heights := value[map[string]float64](b, `(() => {
		const canvas = document.querySelector("canvas"), bars = millraceTimeline.drawn().filter((b) => b.row === "copy_in" || b.row === "compute");
		const [one, two] = [bars.find((b) => b.row === "compute" && b.batch === 1), bars.find((b) => b.row === "copy_in" && b.batch === 2)];
		const start = Math.max(one.x, two.x), x = (start + Math.min(one.x + one.width, two.x + two.width)) / 2, ratio = devicePixelRatio;
		const engines = Math.min(...bars.map((b) => b.y)), data = canvas.getContext("2d").getImageData(Math.round(x * ratio), 0, 1, canvas.height).data;
		const wanted = getComputedStyle(document.documentElement).getPropertyValue("--two").trim().slice(1).match(/../g).map((h) => parseInt(h, 16));
		let above = 0, below = 0;
		for (let y = 0; y < canvas.height; y++) {
			if (wanted.every((v, i) => Math.abs(data[4 * y + i] - v) < 3)) y / ratio < engines ? above++ : below++;
		}
		return { above: above / ratio, below };
	})()`)
	if heights["above"] < 34 || heights["below"] > 0 {
		t.Errorf("two engines at once are %v pixels tall above the engines (and %v below), want at least 34", heights["above"], heights["below"])
	}
	b.wantNoProblems()
}

// TestPageScratchAgreesWithItsBatches checks that the scratch figure matches the batches, although no scratch is in use
// now.
func TestPageScratchAgreesWithItsBatches(t *testing.T) {
	stats := streams.Stats{Device: "GPU-1", Uptime: time.Second, Scratch: streams.ScratchStats{Reserved: 64 << 20, HighWater: 6 << 20, Limit: 1 << 30}}
	line := lineOf(batchOf(1, 0, 0, 1, 2, 30, 31, 32, 33), batchOf(2, 1, 0, 1, 3, 31, 32, 33, 34))
	b := pages(t, telemetry.Debug{Timeline: line, Bounds: bounds(2), Stats: func() []streams.Stats { return []streams.Stats{stats} }})
	b.await("each batch used 5 MiB, and two were there at once", `document.querySelector("[data-scratch]")?.parentElement.textContent === "5 MiB/batch"
		&& document.querySelector("[data-scratch-sub]").textContent === "at most 5 MiB, together 10 MiB; pool 64 MiB of 1 GiB"`)
	b.do(chromedp.Click(`//tbody/tr[1]//button`, chromedp.BySearch), chromedp.WaitVisible("#detail", chromedp.ByQuery))
	if facts := value[string](b, `document.getElementById("detail-facts").textContent`); !strings.Contains(facts, "scratch5 MiB") {
		t.Errorf("the batch says %s", facts)
	}
}

// TestPageReturnsTheFocus checks that Escape returns the focus to the opened row. The focus must stay there although newer batches push the
// row out of the table.
func TestPageReturnsTheFocus(t *testing.T) {
	line := lineOf(batchOf(1, 0, 0, 1, 2, 3, 4, 5, 6))
	b := pages(t, telemetry.Debug{Timeline: line, Bounds: bounds(2)})
	b.await("the batch is in the table", `document.querySelectorAll("#latest-rows tr").length === 1 && document.querySelector("#latest-rows button").checkVisibility()`)
	b.do(chromedp.Focus("#latest-rows button", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#detail", chromedp.ByQuery),
		chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible("#detail", chromedp.ByQuery))
	focus := `document.activeElement.closest("tr")?.dataset.seq`
	if got := value[string](b, focus); got != "1" {
		t.Errorf("after Escape the focus is on row %q", got)
	}
	for n := range 20 {
		line.BatchDone(batchOf(uint64(n+2), 0, 10*n+10, 10*n+11, 10*n+12, 10*n+13, 10*n+14, 10*n+15, 10*n+16))
	}
	b.await("the table shows the newer batches", `document.querySelector("#latest-rows tr")?.dataset.seq === "21"`)
	rows := value[[]string](b, `[...document.querySelectorAll("#latest-rows tr")].map((row) => row.dataset.seq)`)
	if got := value[string](b, focus); got != "1" || strings.Join(rows, " ") != "21 20 19 18 17 16 15 14 1" {
		t.Errorf("the focus is on row %q of %v", got, rows)
	}
	b.do(chromedp.Focus("#pause", chromedp.ByQuery))
	line.BatchDone(batchOf(22, 0, 500, 501, 502, 503, 504, 505, 506))
	b.await("the row goes once the focus has left it", `[...document.querySelectorAll("#latest-rows tr")].map((row) => row.dataset.seq).join(" ") === "22 21 20 19 18 17 16 15"`)
	b.wantNoProblems()
}

// TestPageSaysHowToSend checks that the page of a worker without payloads names the source of payloads and the
// commands.
func TestPageSaysHowToSend(t *testing.T) {
	browser(t)
	s := serve(t)
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_OPERATORS=crc32c",
		"MILLRACE_STREAM=ORDERS", "MILLRACE_SUBJECTS=orders.*.new,orders.old", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	b := open(t, address(t, p, "serving debug pages"))
	b.await("it explains what to do", `document.getElementById("empty").contains(document.getElementById("feed")) && document.getElementById("feed").checkVisibility()`)
	text := value[string](b, `document.getElementById("feed").innerText`)
	for _, part := range []string{s.URL(), "ORDERS", "orders.*.new, orders.old", "RESULTS", "MILLRACE_STREAM=ORDERS MILLRACE_SUBJECTS='orders.*.new,orders.old' " + binary + " send", binary + " results --follow"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %q: %s", part, text)
		}
	}
	if banner := value[string](b, `document.getElementById("on-cpu").innerText`); !strings.Contains(banner, "MILLRACE_DEVICE=host") {
		t.Errorf("the banner of a worker on the CPU is %q", banner)
	}
	for _, width := range []int64{1280, 390} {
		b.prefers(width, "light")
		if out := value[[]string](b, overflow); len(out) > 0 {
			t.Errorf("%d pixels wide: these elements are wider than the window: %q", width, out)
		}
	}
	b.wantNoProblems()
}
