package telemetry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Bounds for the number of batches in a response of /timeline. A batch takes about 300 bytes, plus at most
// maxErrorBytes for its error.
const (
	maxLiveBatches     = 1000
	defaultLiveBatches = 500
	maxErrorBytes      = 300
)

// live is the response of GET /timeline?after=CURSOR&limit=N, the data of the timeline page. Only that page may use the
// format, which can change. Programs should use /metrics and /trace.
//
// Times are whole nanoseconds. Times that grow with the age of the worker are strings. JavaScript numbers represent
// integers exactly only up to 2^53, which is 104 days in nanoseconds.
type live struct {
	Run     string       `json:"run"`      // identifies the worker process; if it changes, earlier cursors and batches are invalid
	Base    string       `json:"base"`     // Unix time of the earliest device epoch
	Now     string       `json:"now"`      // time since Base
	Cursor  uint64       `json:"cursor"`   // value of after for the next request
	LeftOut uint64       `json:"left_out"` // number of batches after the request's cursor that are older than the returned ones
	Devices []liveDevice `json:"devices"`
	Batches []liveBatch  `json:"batches"` // in the order of their release

	Condition liveCondition `json:"condition"`
	Feed      Feed          `json:"feed"`
	CPU       CPU           `json:"cpu"`
	Kept      Kept          `json:"kept"`
	States    *States       `json:"states"` // null without a stateful operator
	Job       *Job          `json:"job"`    // null if unknown
}

// liveCondition is a Condition in the page's format.
type liveCondition struct {
	State string `json:"state"`
	Why   string `json:"why"`
	Since int64  `json:"since"` // Unix time in milliseconds; 0 if unknown
}

// liveDevice describes a device, its totals since the start, and the state of its pipeline.
type liveDevice struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Offset string            `json:"offset"` // from Base to the epoch of the device's clock
	Bounds LiveBounds        `json:"bounds"`
	Sums   sums              `json:"sums"`
	Closed map[string]uint64 `json:"closed"` // number of batches by close reason
	Stats  *streams.Stats    `json:"stats"`  // null while there is no pipeline; times in nanoseconds, memory in bytes
}

// LiveBounds are the bounds of batches on every device. The timeline page uses them to show batch fill.
type LiveBounds struct {
	Lanes    int `json:"lanes"`
	Payloads int `json:"payloads"` // per batch
	Bytes    int `json:"bytes"`    // per batch
}

// liveBatch is an inflight.Record in the page's format.
type liveBatch struct {
	Seq      uint64              `json:"seq"`    // number of this batch among all batches of all devices
	Device   int                 `json:"device"` // index into the devices of the response
	Batch    uint64              `json:"batch"`
	Lane     int                 `json:"lane"`
	Payloads int                 `json:"payloads"`
	Messages int                 `json:"messages"` // fewer than payloads if messages are frames
	Bytes    int                 `json:"bytes"`
	Results  int                 `json:"result_bytes"`
	Scratch  int                 `json:"scratch_bytes"`
	Closed   string              `json:"closed_by"`
	Err      string              `json:"error,omitempty"`
	Start    string              `json:"start"`  // start of the first stage, on the device's clock
	Stages   []*[2]time.Duration `json:"stages"` // start and end of each stage, relative to Start; null for a stage that did not happen
}

func (d Debug) serveLive(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	after, err := wholeNumber(query.Get("after"), 0, 1<<53)
	if err != nil {
		http.Error(w, "after "+err.Error()+": give the cursor of the answer before, or leave it out", http.StatusBadRequest)
		return
	}
	limit, err := wholeNumber(query.Get("limit"), 1, maxLiveBatches)
	if err != nil {
		http.Error(w, "limit "+err.Error(), http.StatusBadRequest)
		return
	}
	limit = cmp.Or(limit, defaultLiveBatches)
	text, err := json.Marshal(d.liveView(after, int(limit), query.Get("after") == ""))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // ignore a client that has disconnected
}

// wholeNumber parses a number within bounds. It returns 0 for an empty text.
func wholeNumber(text string, minimum, maximum uint64) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < minimum || n > maximum {
		return 0, fmt.Errorf("is %q: want a whole number from %d to %d", text, minimum, maximum)
	}
	return n, nil
}

// liveView returns the response with the batches after a cursor. limit is the maximum number of these batches. newcomer reports
// whether the client has no cursor yet. No batch then counts as left out.
func (d Debug) liveView(after uint64, limit int, newcomer bool) live {
	devices, batches, done := d.Timeline.since(after, limit)
	if after > done {
		// The cursor belongs to an earlier worker at this address.
		devices, batches, done = d.Timeline.since(0, limit)
		newcomer = true
	}
	base := earliestEpoch(devices)
	answer := live{
		Run: strconv.FormatInt(d.Timeline.made.UnixNano(), 36), Cursor: done,
		Devices: make([]liveDevice, len(devices)), Batches: make([]liveBatch, len(batches)),
		Base: nanos(0), Now: nanos(0), Condition: d.condition(), Feed: d.Feed, CPU: d.CPU,
	}
	if d.Kept != nil {
		answer.Kept = d.Kept()
	}
	if d.States != nil {
		answer.States = d.States()
	}
	if d.Job != nil {
		job := d.Job()
		answer.Job = &job
	}
	if len(devices) > 0 {
		answer.Base, answer.Now = nanos(time.Duration(base.UnixNano())), nanos(time.Since(base))
	}
	if !newcomer {
		answer.LeftOut = done - after - uint64(len(batches))
	}
	index := map[string]int{}
	stats := d.statsByDevice()
	for i, dev := range devices {
		index[dev.id] = i
		answer.Devices[i] = dev.liveView(base, d.Bounds, stats[dev.id])
	}
	for i := range batches {
		answer.Batches[i] = liveRecord(&batches[i], index[batches[i].Device], done-uint64(len(batches)-i-1))
	}
	return answer
}

// condition returns the worker's condition, or ready if there is no Watch.
func (d Debug) condition() liveCondition {
	if d.Watch == nil {
		return liveCondition{State: conditionReady}
	}
	c := d.Watch.Condition()
	return liveCondition{State: c.State, Why: c.Why, Since: c.Since.UnixMilli()}
}

func nanos(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// statsByDevice returns the stats of all pipelines, or none before the pipelines run.
func (d Debug) statsByDevice() map[string]*streams.Stats {
	byDevice := map[string]*streams.Stats{}
	if d.Stats != nil {
		for _, s := range d.Stats() {
			byDevice[s.Device] = &s
		}
	}
	return byDevice
}

func (t trackedDevice) liveView(base time.Time, bounds LiveBounds, stats *streams.Stats) liveDevice {
	closed := map[string]uint64{}
	for reason, batches := range t.sums.closed {
		closed[streams.CloseReason(reason).String()] = batches
	}
	return liveDevice{ID: t.id, Name: cmp.Or(t.name, t.id), Offset: nanos(t.epoch.Sub(base)), Bounds: bounds, Stats: stats, Closed: closed, Sums: t.sums}
}

func liveRecord(r *inflight.Record, device int, seq uint64) liveBatch {
	whole := r.Extent()
	b := liveBatch{
		Seq: seq, Device: device, Batch: r.Batch, Lane: r.Lane, Payloads: r.Payloads, Messages: r.Messages, Bytes: r.Bytes,
		Results: r.ResultBytes, Scratch: r.Scratch, Closed: r.Closed.String(),
		Start: nanos(whole.Start), Stages: make([]*[2]time.Duration, inflight.NumStages),
	}
	for s, span := range r.Spans() {
		if span != (streams.Span{}) {
			b.Stages[s] = &[2]time.Duration{span.Start - whole.Start, span.End - whole.Start}
		}
	}
	if r.Err != nil {
		b.Err = shortened(r.Err.Error(), maxErrorBytes)
	}
	return b
}

// shortened returns at most the given number of bytes of a text, cut at a character boundary and followed by an
// ellipsis.
func shortened(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + " ..."
}
