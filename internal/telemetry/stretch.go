package telemetry

import (
	"cmp"
	"slices"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// stretchBatches is the length of a stretch, in multiples of a batch's time on the device. It is long enough to show
// the rhythm and short enough that a batch is several characters wide.
const stretchBatches = 3

// stretch is a section of one device's timeline.
type stretch struct {
	device  string
	span    streams.Span
	records []inflight.Record // batches with a busy engine within span, ordered by the start of their copy in
}

// busiest returns the stretch with the most overlap of engines, over all devices. Three engines at once count more than
// two. Stages that took far longer than usual don't count, because they show a pause of the host rather than the
// rhythm. It returns false if no batch has been on a device yet.
func (t *Timeline) busiest() (stretch, bool) {
	var best stretch
	most := -1.0
	devices, _ := t.snapshot()
	for _, d := range devices {
		bars := d.engineBars()
		if len(bars) == 0 {
			continue
		}
		rhythm := usual(bars)
		length := min(stretchLength(d.records), lengthOf(rhythm))
		for _, b := range bars {
			s := streams.Span{Start: b.span.Start, End: b.span.Start + length}
			share := overlap(rhythm, s).Seconds() / length.Seconds()
			if share > most {
				most = share
				best = stretch{device: d.id, span: s, records: d.records}
			}
		}
	}
	if most < 0 {
		return stretch{}, false
	}
	best.records = within(best.records, best.span)
	return best, true
}

// engineBars returns the device stages of all batches in order of time, without those of length zero.
func (d deviceTimeline) engineBars() (bars []bar) {
	for _, t := range engineTracks(d.records) {
		bars = append(bars, t.bars...)
	}
	bars = slices.DeleteFunc(bars, func(b bar) bool { return b.span.Duration() <= 0 })
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(a.span.Start, b.span.Start) })
	return bars
}

// unusual is the multiple of its stage's median above which a bar is ignored.
const unusual = 4

// usual returns the bars with about the usual duration for their stage.
func usual(bars []bar) []bar {
	var times [inflight.NumStages][]time.Duration
	for _, b := range bars {
		times[b.stage] = append(times[b.stage], b.span.Duration())
	}
	for _, t := range times {
		slices.Sort(t)
	}
	return slices.DeleteFunc(slices.Clone(bars), func(b bar) bool {
		t := times[b.stage]
		return b.span.Duration() > unusual*t[len(t)/2]
	})
}

// stretchLength returns stretchBatches times the median time that batches spend on the device.
func stretchLength(records []inflight.Record) time.Duration {
	var times []time.Duration
	for i := range records {
		if d := onDevice(&records[i]).Duration(); d > 0 {
			times = append(times, d)
		}
	}
	slices.Sort(times)
	return stretchBatches * times[len(times)/2]
}

// onDevice returns a batch's time from the start of its copy in to the end of its copy out.
func onDevice(r *inflight.Record) streams.Span {
	device := inflight.Record{}
	for _, stage := range engineStages {
		device.Stages[stage] = r.Stages[stage]
	}
	return device.Extent()
}

// within returns the batches that have a busy engine within the span.
func within(records []inflight.Record, span streams.Span) []inflight.Record {
	var in []inflight.Record
	for _, r := range records {
		for _, stage := range engineStages {
			if s := r.Stages[stage]; s.Start < span.End && s.End > span.Start {
				in = append(in, r)
				break
			}
		}
	}
	slices.SortFunc(in, func(a, b inflight.Record) int {
		return cmp.Or(cmp.Compare(onDevice(&a).Start, onDevice(&b).Start), cmp.Compare(a.Batch, b.Batch))
	})
	return in
}

// lengthOf returns the time from the start of the first bar to the end of the last.
func lengthOf(bars []bar) time.Duration {
	whole := bars[0].span
	for _, b := range bars {
		whole.Start, whole.End = min(whole.Start, b.span.Start), max(whole.End, b.span.End)
	}
	return whole.Duration()
}

// weights maps the number of busy engines to the weight of the time with that number.
var weights = [streams.NumEngines + 1]time.Duration{2: 1, 3: 4}

// overlap returns the weighted time within the span in which engines were busy at once. The bars are in order of time. It is
// only used to choose what to draw; published values come from the pipeline.
func overlap(bars []bar, within streams.Span) (weighted time.Duration) {
	type change struct {
		at     time.Duration
		engine inflight.Stage
		step   int
	}
	var changes []change
	for _, b := range bars {
		if b.span.Start >= within.End {
			break
		}
		if b.span.End > within.Start {
			changes = append(changes, change{max(b.span.Start, within.Start), b.stage, 1}, change{min(b.span.End, within.End), b.stage, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var running [inflight.NumStages]int // number of current bars on each engine
	before := within.Start
	for _, now := range changes {
		busy := 0
		for _, current := range running {
			busy += min(current, 1)
		}
		weighted += weights[busy] * (now.at - before)
		before = now.at
		running[now.engine] += now.step
	}
	return weighted
}
