package telemetry

import (
	"cmp"
	"slices"
	"time"

	"millrace/internal/streams"
)

// stretchBatches is how long a stretch is, in batches' times on the device: long enough to see the rhythm,
// short enough that a batch is a few characters wide.
const stretchBatches = 3

// stretch is a part of one device's timeline.
type stretch struct {
	device  string
	span    streams.Span
	records []streams.Record // those with an engine busy within it, by start of their copy in
}

// busiest finds the stretch with the most overlap of engines, over all devices: three engines at once count more
// than two, and stages that took far longer than usual count for nothing, since they show a pause of the host and
// not the rhythm. It says false if no batch has been on a device yet.
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

// engineBars gives the device stages of all batches by time; those of no length are left out.
func (d deviceTimeline) engineBars() (bars []bar) {
	for _, t := range engineTracks(d.records) {
		bars = append(bars, t.bars...)
	}
	bars = slices.DeleteFunc(bars, func(b bar) bool { return b.span.Duration() <= 0 })
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(a.span.Start, b.span.Start) })
	return bars
}

// unusual is how many times its stage's median a bar takes that is left out of the choice.
const unusual = 4

// usual is the bars that took about as long as their stage's do.
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

// stretchLength is stretchBatches times the median time that batches spend on the device.
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

// onDevice is a batch's time from the start of its copy in to the end of its copy out.
func onDevice(r *streams.Record) streams.Span {
	device := streams.Record{}
	for _, stage := range engineStages {
		device.Stages[stage] = r.Stages[stage]
	}
	return extent(&device)
}

// within gives the batches that have an engine busy within the span.
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

// curve is how much engines had overlapped by each moment at which the number of busy ones changes. It serves to
// choose what to draw; the figures that are published are the pipeline's own.
type curve []point

type point struct {
	at, overlap time.Duration
	weight      time.Duration // how fast overlap grows from here on
}

// weights is what a moment with so many busy engines counts.
var weights = [streams.NumEngines + 1]time.Duration{2: 1, 3: 4}

// overlapCurve follows the engines through the bars.
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
		running [streams.NumStages]int // bars under way on each engine
		busy    int                    // engines with any
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

// before is the overlap up to a moment.
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
