package telemetry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// answer is the response of /timeline, as the page parses it.
type answer struct {
	Run     string
	Base    string
	Now     string
	Cursor  uint64
	LeftOut uint64 `json:"left_out"`
	Devices []struct {
		ID, Name, Offset string
		Bounds           struct{ Lanes, Payloads, Bytes int }
		Sums             map[string]uint64
		Closed           map[string]uint64
		Stats            *streams.Stats
	}
	Batches []struct {
		Seq             uint64
		Device          int
		Batch           uint64
		Lane            int
		Payloads, Bytes int
		Closed          string `json:"closed_by"`
		Error           string
		Start           string
		Stages          []*[2]time.Duration
	}
}

func ask(t *testing.T, url, query string) answer {
	t.Helper()
	status, header, body := get(t, url+"/timeline"+query)
	if status != 200 || header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("/timeline%s: %d, %v, %.300s", query, status, header, body)
	}
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v in %.300s", err, body)
	}
	return a
}

// served serves a timeline's debug pages and returns their URL.
func served(t *testing.T, line *telemetry.Timeline) (url string) {
	t.Helper()
	return serve(t, telemetry.DebugHandler(telemetry.Debug{
		Timeline: line, Build: build, Bounds: telemetry.LiveBounds{Lanes: 4, Payloads: 8192, Bytes: 4 << 20},
		Stats: func() []streams.Stats { return []streams.Stats{someStats("GPU-1")} },
	}))
}

func TestLiveGivesStagesExactly(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "NVIDIA H100", epoch)
	r := pipelined("GPU-1", 1, 1)[0]
	const old = 1<<60 + 1 // nanoseconds; JavaScript can't represent this number exactly
	later(r, old)
	r.Settle = streams.Span{}
	line.BatchDone(r)
	b := ask(t, served(t, line), "").Batches[0]
	start, err := strconv.ParseInt(b.Start, 10, 64)
	if err != nil || start != int64(r.Stages[streams.Fill].Start) {
		t.Errorf("starts at %s (%v), want %d", b.Start, err, r.Stages[streams.Fill].Start)
	}
	for s, want := range r.Spans() {
		switch got := b.Stages[s]; {
		case want == streams.Span{} && got != nil:
			t.Errorf("%v did not happen and is %v", inflight.Stage(s), got)
		case want != streams.Span{} && (got == nil || got[0]+time.Duration(start) != want.Start || got[1]+time.Duration(start) != want.End):
			t.Errorf("%v is %v since the start, want %v", inflight.Stage(s), got, want)
		}
	}
	if b.Seq != 1 || b.Batch != 1 || b.Payloads != 100 || b.Bytes != 1<<20 || b.Closed != "bytes" || b.Error != "" {
		t.Errorf("the batch is %+v", b)
	}
}

func TestLiveGoesOnFromItsCursor(t *testing.T) {
	line := telemetry.NewTimeline(100)
	url := served(t, line)
	records := pipelined("GPU-1", 30, 4)
	var seen []uint64
	query := ""
	for i, r := range records {
		line.BatchDone(r)
		if i%7 == 6 || i == len(records)-1 {
			a := ask(t, url, query)
			for _, b := range a.Batches {
				seen = append(seen, b.Batch)
			}
			query = fmt.Sprint("?after=", a.Cursor)
			if a.LeftOut != 0 {
				t.Errorf("after %d batches %d are left out", i+1, a.LeftOut)
			}
		}
	}
	if want := "[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30]"; fmt.Sprint(seen) != want {
		t.Errorf("saw %v, want each batch once", seen)
	}
	if a := ask(t, url, query); len(a.Batches) != 0 || a.LeftOut != 0 || a.Cursor != 30 {
		t.Errorf("without new batches: %d batches, %d left out, cursor %d", len(a.Batches), a.LeftOut, a.Cursor)
	}
}

// TestLiveIsBounded checks that the response has the newest batches and the number of omitted batches, including
// dropped ones.
func TestLiveIsBounded(t *testing.T) {
	line := telemetry.NewTimeline(2000)
	for _, r := range pipelined("GPU-1", 5000, 4) {
		line.BatchDone(r)
	}
	url := served(t, line)
	for _, c := range []struct {
		query         string
		sent, leftOut int
	}{
		{"", 500, 0}, // a new page has missed no batch
		{"?limit=3", 3, 0},
		{"?limit=1000", 1000, 0},
		{"?after=0&limit=10", 10, 4990},
		{"?after=4990", 10, 0},
		{"?after=4000&limit=1000", 1000, 0},
		{"?after=4000&limit=10", 10, 990},
		{"?after=5000", 0, 0},
		{"?after=6000&limit=20", 20, 0}, // the cursor of a previous worker that had processed more
	} {
		a := ask(t, url, c.query)
		if len(a.Batches) != c.sent || int(a.LeftOut) != c.leftOut || a.Cursor != 5000 {
			t.Errorf("%s: %d batches, %d left out, cursor %d, want %d, %d, 5000", c.query, len(a.Batches), a.LeftOut, a.Cursor, c.sent, c.leftOut)
		}
		for i, b := range a.Batches {
			if want := uint64(5000 - c.sent + 1 + i); b.Seq != want || b.Batch != want {
				t.Fatalf("%s: entry %d is batch %d with seq %d, want %d", c.query, i, b.Batch, b.Seq, want)
			}
		}
	}
}

func TestLiveOfAShortMemory(t *testing.T) {
	line := telemetry.NewTimeline(5)
	for _, r := range pipelined("GPU-1", 13, 2) {
		line.BatchDone(r)
	}
	if a := ask(t, served(t, line), "?after=2"); len(a.Batches) != 5 || a.Batches[0].Batch != 9 || a.LeftOut != 6 {
		t.Errorf("%d batches from %d on, %d left out, want 5 from 9 on, 6", len(a.Batches), a.Batches[0].Batch, a.LeftOut)
	}
}

func TestLiveRefusesBadQueries(t *testing.T) {
	url := served(t, timelineOf())
	for _, limit := range []string{"0", "1001", "-1", "ten", "1.5"} {
		has(t, url+"/timeline?limit="+limit, 400, `limit is "`+limit+`": want a whole number from 1 to 1000`)
	}
	for _, after := range []string{"-1", "x", "9007199254740993", "99999999999999999999"} {
		has(t, url+"/timeline?after="+after, 400, `after is "`+after+`": want a whole number from 0 to 9007199254740992`)
	}
}

func TestLiveOfSeveralDevices(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "one", epoch.Add(2*ms))
	line.AddDevice("GPU-2", "two", epoch)
	for _, id := range []string{"GPU-1", "GPU-2", "GPU-2"} {
		line.BatchDone(pipelined(id, 1, 1)[0])
	}
	a := ask(t, served(t, line), "")
	if len(a.Devices) != 2 || a.Devices[0].ID != "GPU-1" || a.Devices[1].Name != "two" {
		t.Fatalf("the devices are %+v", a.Devices)
	}
	if a.Base != fmt.Sprint(epoch.UnixNano()) || a.Devices[0].Offset != "2000000" || a.Devices[1].Offset != "0" {
		t.Errorf("clocks begin at %s, and %s and %s from there", a.Base, a.Devices[0].Offset, a.Devices[1].Offset)
	}
	if a.Batches[0].Device != 0 || a.Batches[1].Device != 1 || a.Batches[2].Device != 1 {
		t.Errorf("batches of GPU-1, GPU-2 and GPU-2 are %+v", a.Batches)
	}
	if got := a.Devices[1].Sums; got["batches"] != 2 || got["payloads"] != 200 || got["bytes"] != 2<<20 || got["failed"] != 0 {
		t.Errorf("GPU-2 has done %v", got)
	}
	if s := a.Devices[0].Stats; s == nil || a.Devices[1].Stats != nil {
		t.Errorf("stats of the one device with a pipeline %v, of the other %v", s, a.Devices[1].Stats)
	}
}

func TestLiveGivesThePipelinesState(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "one", epoch)
	for _, r := range pipelined("GPU-1", 6, 2) {
		line.BatchDone(r)
	}
	d := ask(t, served(t, line), "").Devices[0]
	want := someStats("GPU-1")
	s := d.Stats
	if *s != want {
		t.Errorf("the state is %+v, want %+v", *s, want)
	}
	if d.Bounds.Lanes != 4 || d.Bounds.Payloads != 8192 || d.Bounds.Bytes != 4<<20 {
		t.Errorf("bounds are %+v", d.Bounds)
	}
	if c := d.Closed; c["bytes"] != 2 || c["count"] != 2 || c["linger"] != 1 || c["drain"] != 1 {
		t.Errorf("closed by %v", c)
	}
}

func TestLiveOfAFailedBatch(t *testing.T) {
	line := telemetry.NewTimeline(100)
	failed := pipelined("GPU-1", 1, 1)[0]
	failed.Err = errors.New(strings.Repeat("é", 1000))
	line.BatchDone(failed)
	a := ask(t, served(t, line), "")
	if got, want := a.Batches[0].Error, strings.Repeat("é", 150)+" ..."; got != want {
		t.Errorf("the error is %q, want %q", got, want)
	}
	if a.Devices[0].Sums["failed"] != 1 {
		t.Errorf("%d failed", a.Devices[0].Sums["failed"])
	}
}

func TestLiveBeforeTheFirstBatch(t *testing.T) {
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))
	a := ask(t, url, "")
	if a.Run == "" || a.Base != "0" || a.Now != "0" || a.Cursor != 0 || a.Devices == nil || a.Batches == nil || len(a.Devices)+len(a.Batches) != 0 {
		t.Errorf("the answer is %+v", a)
	}
	if other := ask(t, serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build})), ""); other.Run == a.Run {
		t.Errorf("two workers are both run %s", a.Run)
	}
}
