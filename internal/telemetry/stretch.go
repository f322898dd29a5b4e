package telemetry

import (
	"cmp"
	"slices"
	"time"

	"millrace/internal/streams"
)

// stretchBatches is the length of a stretch, in multiples of a batch's time on the device. It is long enough to show
// the rhythm and short enough that a batch is several characters wide.
const stretchBatches = 3

// stretch is a section of one device's timeline.
type stretch struct {
	device  string
	span    streams.Span
	records []streams.Record // batches with a busy engine within span, ordered by the start of their copy in
}

// busiest returns the stretch with the most overlap of engines, over all devices. Three engines at once count more than
// two. Stages that took far longer than usual don't count, because they show a pause of the host rather than the
// rhythm. It returns false if no batch has been on a device yet.
func (t *Timeline) busiest() (stretch, bool) {
	var best stretch
	most := -1.0
	for _, d := range t.snapshot() {
		bars := d.engineBars()
		if len(bars) == 0 {
			continue
		}
		curve := overlapCurve(usual(bars))
		length := min(stretchLength(d.records), curve[len(curve)-1].at-curve[0].at)
		for _, b := range bars {
			s := streams.Span{Start: b.span.Start, End: b.span.Start + length}
			share := (curve.before(s.End) - curve.before(s.Start)).Seconds() / length.Seconds()
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

// usual returns the bars that took about as long as is usual for their stage.
func usual(bars []bar) []bar {
	var times [streams.NumStages][]time.Duration
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
func stretchLength(records []streams.Record) time.Duration {
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
func onDevice(r *streams.Record) streams.Span {
	device := streams.Record{}
	for _, stage := range engineStages {
		device.Stages[stage] = r.Stages[stage]
	}
	return extent(&device)
}

// within returns the batches that have a busy engine within the span.
func within(records []streams.Record, span streams.Span) []streams.Record {
	var in []streams.Record
	for _, r := range records {
		for _, stage := range engineStages {
			if s := r.Stages[stage]; s.Start < span.End && s.End > span.Start {
				in = append(in, r)
				break
			}
		}
	}
	slices.SortFunc(in, func(a, b streams.Record) int {
		return cmp.Or(cmp.Compare(onDevice(&a).Start, onDevice(&b).Start), cmp.Compare(a.Batch, b.Batch))
	})
	return in
}

// curve is the cumulative overlap at each time at which the number of busy engines changes. It is only used to choose
// what to draw; published values come from the pipeline.
type curve []point

type point struct {
	at, overlap time.Duration
	weight      time.Duration // growth rate of overlap from here on
}

// weights maps the number of busy engines to the weight of the time with that number.
var weights = [streams.NumEngines + 1]time.Duration{2: 1, 3: 4}

// overlapCurve computes the curve for the bars.
func overlapCurve(bars []bar) curve {
	type change struct {
		at     time.Duration
		engine streams.Stage
		step   int
	}
	changes := make([]change, 0, 2*len(bars))
	for _, b := range bars {
		changes = append(changes, change{b.span.Start, b.stage, 1}, change{b.span.End, b.stage, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var (
		c       = make(curve, 1, len(changes)+1)
		running [streams.NumStages]int // number of current bars on each engine
		busy    int                    // number of engines with a current bar
		overlap time.Duration
		before  time.Duration
	)
	c[0].at = changes[0].at
	for _, now := range changes {
		overlap += weights[busy] * (now.at - before)
		before = now.at
		was := running[now.engine]
		running[now.engine] += now.step
		switch {
		case was == 0:
			busy++
		case running[now.engine] == 0:
			busy--
		}
		c = append(c, point{now.at, overlap, weights[busy]})
	}
	return c
}

// before returns the overlap up to the given time.
func (c curve) before(at time.Duration) time.Duration {
	i, exact := slices.BinarySearchFunc(c, at, func(p point, at time.Duration) int { return cmp.Compare(p.at, at) })
	switch {
	case exact || i == 0:
		return c[min(i, len(c)-1)].overlap
	case i == len(c):
		return c[i-1].overlap
	}
	from := c[i-1]
	return from.overlap + from.weight*(at-from.at)
}
