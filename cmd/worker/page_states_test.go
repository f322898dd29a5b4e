package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// The pictures of docs/troubleshooting.md: the page in four states, at two widths.
const (
	wide, narrow             = 1280, 390
	wideHeight, narrowHeight = 900, 1400 // at most; a shorter page gives a shorter picture
)

const (
	// broken lists commands in the text that are broken over two lines, where a reader would miss a part.
	broken = `[...document.querySelectorAll("p code")].filter((c) => c.checkVisibility() && c.getClientRects().length > 1).map((c) => c.innerText)`

	// edges are the positions of the titles in the first column of figures, which should be the same.
	edges = `[...new Set([...document.querySelectorAll(".tile h3")].map((h) => Math.round(h.getBoundingClientRect().left)))].sort((a, b) => a - b)`
)

// pictures checks the layout of the page at both widths, and takes a picture of each.
func (b *tab) pictures(state string) {
	b.t.Helper()
	for _, size := range []struct {
		width, most int64
		columns     int // of figures
		name        string
	}{{wide, wideHeight, 6, "1280"}, {narrow, narrowHeight, 2, "390"}} {
		b.prefers(size.width, "light")
		b.do(chromedp.EmulateViewport(size.width, min(size.most, value[int64](b, `Math.ceil(document.body.getBoundingClientRect().bottom)`))))
		if out := value[[]string](b, overflow); len(out) > 0 {
			b.t.Errorf("%s, %d pixels wide: these elements are wider than the window: %q", state, size.width, out)
		}
		if out := value[[]string](b, broken); len(out) > 0 {
			b.t.Errorf("%s, %d pixels wide: these commands are broken over two lines: %q", state, size.width, out)
		}
		if at := value[[]int](b, edges); len(at) != size.columns {
			b.t.Errorf("%s, %d pixels wide: the figures begin at %v, want %d columns", state, size.width, at, size.columns)
		}
		if state == "live" {
			b.settled("the engines are busy until now", `millraceTimeline.drawn().some((b) => b.row === "copy_in" && b.end > millraceTimeline.view.end - 0.1 * millraceTimeline.view.window)`)
		}
		b.picture("page-" + state + "-" + size.name + ".png")
	}
}

// idleWorker starts a worker on the CPU, as a user would in the worker's folder, and opens its page.
func idleWorker(t *testing.T, url string) *tab {
	t.Helper()
	p := startCommand(t, &exec.Cmd{Path: binary, Args: []string{"./worker"}}, []string{"MILLRACE_NATS_URL=" + url, "MILLRACE_PROVISION=true",
		"MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	b := open(t, address(t, p, "serving debug pages"))
	b.await("it waits for the first batch", pageState+` === "idle" && document.getElementById("feed-send").innerText.endsWith(" ./worker send")`)
	return b
}

// TestPicturesOfTheStates checks the page when the worker is idle, when it has lost its server, and when no GPU is used.
func TestPicturesOfTheStates(t *testing.T) {
	browser(t)
	s := serve(t)
	b := idleWorker(t, s.URL())
	b.pictures("idle")
	js := client(t, s)
	for n := range 3 {
		if _, err := js.Publish(t.Context(), "ingest.test", []byte("payload")); err != nil {
			t.Fatal(err)
		}
		awaitResults(t, js, uint64(n+1))
	}
	b.await("the batches are drawn", `millraceTimeline.drawn().length > 0`)
	s.Close()
	b.await("it says that there is no server", pageState+` === "bad" && document.getElementById("trouble").checkVisibility()`)
	b.settled("it says for how long", `parseInt(document.getElementById("trouble-for").textContent.replace("for ", "")) >= 5`)
	b.pictures("no-nats")

	b = demonstration(t, "MILLRACE_DEVICE=auto")
	b.await("it is live and says that no GPU is used", pageState+` === "live" && document.getElementById("on-cpu").innerText.includes("found none")`)
	b.full()
	b.pictures("no-gpu")
	b.wantNoProblems()
}

// TestPictureOfALivePage checks the page while a GPU's engines overlap. A test has no GPU, so it makes up the batches.
func TestPictureOfALivePage(t *testing.T) {
	const device, lanes, period = "GPU-1", 4, 60
	epoch := time.Now().Add(-time.Hour)
	line := telemetry.NewTimeline(1000)
	line.AddDevice(device, "GPU (imitated by a test)", epoch)
	batch := func(n int) *inflight.Record {
		at := period*n + n*n%7 // batches are not quite regular
		r := batchOf(uint64(n), n%lanes, at-70, at, at+40+n%5, at+100, at+133-n%4, at+190+n%9, at+194+n%9)
		r.Payloads, r.Bytes, r.Scratch, r.Closed = 5200+37*(n%13), 4<<20-n%11<<12, 9<<20, streams.ClosedByBytes
		return r
	}
	next := int(time.Since(epoch).Milliseconds())/period - 300
	finish := func() { // all batches that have ended by now
		for ; time.Duration(period*next+300)*time.Millisecond < time.Since(epoch); next++ {
			line.BatchDone(batch(next))
		}
	}
	finish()
	done, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				finish()
			case <-done:
				return
			}
		}
	}()
	b := pages(t, telemetry.Debug{Timeline: line, Build: build(), Bounds: telemetry.LiveBounds{Lanes: lanes, Payloads: 8192, Bytes: 4 << 20}, Stats: func() []streams.Stats {
		up := time.Since(epoch)
		return []streams.Stats{{
			Device: device, Uptime: up, Busy: up * 99 / 100, Overlap: up * 84 / 100, Engines: [streams.NumEngines]time.Duration{up * 7 / 10, up * 96 / 100, up / 2},
			Lanes: streams.LaneCounts{InFlight: 3, Filling: 1}, Pinned: 65 << 20, Scratch: streams.ScratchStats{Used: 18 << 20, Reserved: 64 << 20, HighWater: 27 << 20, Limit: 1 << 30},
		}}
	}})
	b.await("it is live, and engines overlap", pageState+` === "live" && `+enginesOverlap)
	if value[bool](b, `document.getElementById("on-cpu").checkVisibility()`) {
		t.Error("the page of a worker on a GPU says that no GPU is used")
	}
	b.full()
	b.pictures("live")
	b.wantNoProblems()
}
