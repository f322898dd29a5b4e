package main

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// These constants are for the pictures of docs/troubleshooting.md, which show the page in five states at two widths.
const (
	wide, narrow             = 1280, 390
	wideHeight, narrowHeight = 900, 1400 // maximum heights; a shorter page has a shorter picture
)

const (
	// broken lists commands that continue on a second line, which a reader could miss.
	broken = `[...document.querySelectorAll("p code")].filter((c) => c.checkVisibility() && c.getClientRects().length > 1).map((c) => c.innerText)`

	// columns returns the numbers of columns of figures, for the job and for the devices.
	columns = `[...document.querySelectorAll(".tiles")].filter((tiles) => tiles.checkVisibility()).map((tiles) => new Set([...tiles.querySelectorAll("h3")]
		.filter((h) => h.checkVisibility()).map((h) => Math.round(h.getBoundingClientRect().left))).size)`
)

// sharesOfTime lists the shares of time in the legend and the figures: no, one, several or any busy engine, and the
// overlap.
const sharesOfTime = `["[data-share=none] b", "[data-share=one] b", "[data-share=several] b", "[data-busy]", "[data-overlap]"].map((e) => parseFloat(document.querySelector(e).textContent)).join(" ")`

// pictures checks the page's layout at both widths and takes a picture of each. figures are the numbers of columns at
// the larger width.
func (t *tab) pictures(state string, figures ...int) {
	t.t.Helper()
	for _, size := range []struct {
		width, max int64
		columns    []int // columns of figures
		name       string
	}{{wide, wideHeight, figures, "1280"}, {narrow, narrowHeight, slices.Repeat([]int{2}, len(figures)), "390"}} {
		t.prefers(size.width, "light")
		t.do(chromedp.EmulateViewport(size.width, min(size.max, value[int64](t, `Math.ceil(document.body.getBoundingClientRect().bottom)`))))
		t.await("the timelines have the window's width", `[...document.querySelectorAll("canvas")].every((c) => !c.checkVisibility() || c.width === Math.round(c.clientWidth * devicePixelRatio))`)
		if out := value[[]string](t, overflow); len(out) > 0 {
			t.t.Errorf("%s, %d pixels wide: these elements are wider than the window: %q", state, size.width, out)
		}
		if out := value[[]string](t, broken); len(out) > 0 {
			t.t.Errorf("%s, %d pixels wide: these commands are broken over two lines: %q", state, size.width, out)
		}
		if got := value[[]int](t, columns); !slices.Equal(got, size.columns) {
			t.t.Errorf("%s, %d pixels wide: the figures have %d columns, want %d", state, size.width, got, size.columns)
		}
		if state == "live" {
			t.settled("the engines are busy until now", `millraceTimeline.drawn().some((b) => b.row === "copy_in" && b.end > millraceTimeline.view.end - 0.1 * millraceTimeline.view.window)`)
		}
		t.picture("page-" + state + "-" + size.name + ".png")
	}
}

// idleWorker starts a worker on the CPU in the worker's folder, as a user would, and opens its page.
func idleWorker(t *testing.T, url string) *tab {
	t.Helper()
	p := startCommand(t, &exec.Cmd{Path: binary, Args: []string{"./worker"}}, []string{"MILLRACE_NATS_URL=" + url, "MILLRACE_PROVISION=true",
		"MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	b := open(t, address(t, p, "serving debug pages"))
	b.await("it waits for the first batch", pageState+` === "idle" && document.getElementById("feed-send").innerText.endsWith(" ./worker send")`)
	return b
}

// TestPicturesOfTheStates checks the page while the worker is idle, without its server, and without a GPU.
func TestPicturesOfTheStates(t *testing.T) {
	browser(t)
	s := serve(t)
	b := idleWorker(t, s.URL())
	b.pictures("idle", 6, 5)
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
	b.pictures("no-nats", 6, 5)

	b = demonstration(t, "MILLRACE_DEVICE=auto")
	b.await("it is live and says that no GPU is used", pageState+` === "live" && document.getElementById("on-cpu").innerText.includes("found none")`)
	b.awaitFull()
	b.settled("the rate of the job is known", textOf("job-until")+` !== "–"`)
	b.pictures("no-gpu", 6, 6)
	b.wantNoProblems()
}

// busyJob returns the job of TestPictureOfALivePage one hour after its start.
func busyJob(epoch time.Time) telemetry.Job {
	const rate, size = 90_300, 772 // records per second, and bytes per record
	done := uint64(time.Since(epoch).Seconds() * rate)
	j := *working(400_000_000-done, rate, rate)
	j.Started, j.Finished, j.Records, j.Bytes, j.RecordRate, j.ByteRate = epoch.UnixMilli(), done, done, done*size, rate, rate*size
	for n := range 60 {
		speed := rate * (0.93 + float64(n*n%13)/100)
		j.Points = append(j.Points, telemetry.JobPoint{At: time.Now().UnixMilli() - int64(59-n)*5000, Records: speed, Bytes: speed * size})
	}
	j.Worker = telemetry.JobWorker{Host: "millrace-5d9c7b8f4-x2x9k", Process: 1, Connection: connectionName}
	return j
}

// TestPictureOfALivePage checks the page while a GPU's engines overlap. The batches are invented, because the test has
// no GPU.
func TestPictureOfALivePage(t *testing.T) {
	const device, lanes, period = "GPU-1", 4, 60
	epoch := time.Now().Add(-time.Hour)
	line := telemetry.NewTimeline(1000)
	line.AddDevice(device, "GPU (imitated by a test)", epoch)
	batch := func(n int) *inflight.Record {
		at := period*n + n*n%7 // a slightly irregular interval
		r := batchOf(uint64(n), n%lanes, at-70, at, at+40+n%5, at+100, at+133-n%4, at+190+n%9, at+194+n%9)
		r.Payloads, r.Bytes, r.Scratch, r.Closed = 5200+37*(n%13), 4<<20-n%11<<12, 9<<20, streams.ClosedByBytes
		return r
	}
	next := int(time.Since(epoch).Milliseconds())/period - 300
	finish := func() { // adds all batches that have ended by now
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
	b := pages(t, telemetry.Debug{Timeline: line, Build: build(), Job: func() telemetry.Job { return busyJob(epoch) }, Bounds: telemetry.LiveBounds{Lanes: lanes, Payloads: 8192, Bytes: 4 << 20}, Stats: func() []streams.Stats {
		up := time.Since(epoch)
		return []streams.Stats{{
			Device: device, Uptime: up, Counted: up, Busy: up * 99 / 100, Overlap: up * 84 / 100, Engines: [streams.NumEngines]time.Duration{up * 7 / 10, up * 96 / 100, up / 2},
			Lanes: streams.LaneCounts{InFlight: 3, Filling: 1}, Pinned: 65 << 20, Scratch: streams.ScratchStats{Used: 18 << 20, Reserved: 64 << 20, HighWater: 27 << 20, Limit: 1 << 30},
		}}
	}})
	b.await("it is live, and engines overlap", pageState+` === "live" && `+enginesOverlap)
	b.await("figures and legend cover the same time", sharesOfTime+` === "1 15 84 99 85" && document.querySelector("[data-span]").textContent === "Over the last 3 s:" &&
		document.querySelector("[data-overlap-sub]").textContent === "85 % since the start"`)
	if value[bool](b, `document.getElementById("on-cpu").checkVisibility()`) {
		t.Error("the page of a worker on a GPU says that no GPU is used")
	}
	b.awaitFull()
	b.pictures("live", 6, 6)
	b.wantNoProblems()
}
