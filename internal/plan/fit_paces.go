package plan

import (
	"context"
	"slices"
	"time"

	"millrace/internal/streams"
)

// lowestShare bounds how much of its speed anything is taken to lose beside other work.
const lowestShare = 0.4

// leastShare is the least share of their speed that stages can have kept in the widest rows: they took no longer there
// than their medians say, over all sizes together. These may have waiting in them, so the share may have been more.
func (f *Fitted) leastShare(w Workload, engines ...streams.Engine) float64 {
	var alone, beside float64
	for _, size := range w.sizes() {
		rows := w.widest(size)
		if len(rows) == 0 || !rows[0].timed() {
			continue
		}
		for _, e := range engines {
			alone += timeOf(f.Stages[e], size).Seconds()
			beside += rows[0].Stages[e]
		}
	}
	if beside == 0 {
		return lowestShare
	}
	return min(max(alone/beside, lowestShare), 1)
}

// fitPaces fits what shows in how batches follow each other: the dispatch on one lane; the shares and the dispatch
// within the stage times with many lanes; and, where these do not explain it and it is not given, the host's time. It
// looks for the figures with which the model comes nearest to the seconds of the rows with one lane and of those
// with most lanes, of each size.
func (f *Fitted) fitPaces(ctx context.Context, w Workload, fitHost bool) error {
	knobs := f.knobs(w)
	if len(knobs) == 0 {
		return ctx.Err()
	}
	most := f.mostHost()
	if fitHost {
		f.setHost(min(f.Host, most))
	}
	miss := func() (float64, error) { return f.miss(ctx) }
	left, err := search(knobs, miss)
	if err != nil || !fitHost || left <= explained*float64(len(f.fitted)) {
		return err
	}
	host := &knob{at: f.Host.Seconds() / most.Seconds(), set: func(at float64) { f.setHost(time.Duration(at * float64(most))) }}
	_, err = search(append(knobs, host), miss)
	return err
}

// knobs picks the rows to fit, and the figures that they tell.
func (f *Fitted) knobs(w Workload) (knobs []*knob) {
	var most time.Duration // that dispatch can be: all of the shortest batch
	for _, size := range w.sizes() {
		if row, some := w.single(size); some {
			f.fitted = append(f.fitted, row)
			if t := seconds(row.Seconds) / time.Duration(streams.NumEngines); most == 0 || t < most {
				most = t
			}
		}
	}
	if most > 0 {
		knobs = append(knobs, &knob{set: func(at float64) { f.setDispatch(time.Duration(at * float64(most))) }})
	} else {
		f.assume("No row has one lane with two buffers: streams are taken to go from stage to stage without a gap.")
	}
	singles := len(f.fitted)
	for _, size := range w.sizes() {
		f.fitted = append(f.fitted, w.widest(size)...)
	}
	if len(f.fitted) == singles {
		f.assume("No row has several lanes: engines are taken not to slow each other.")
		return knobs
	}
	shortest := f.shortestStage(w)
	leastCopy := f.leastShare(w, streams.CopyInEngine, streams.CopyOutEngine)
	leastCompute := f.leastShare(w, streams.ComputeEngine)
	return append(knobs,
		&knob{set: func(at float64) { f.CopyShare = 1 - at*(1-leastCopy) }},
		&knob{set: func(at float64) { f.ComputeShare = 1 - at*(1-leastCompute) }},
		&knob{set: func(at float64) { f.DispatchWithin = time.Duration(at * float64(shortest)) }},
	)
}

// explained is the miss of a row that needs no more figures: an error of 1 %. A model with more of them than the
// rows ask for would fit these as well and others worse.
const explained = 0.01 * 0.01

// shortestStage is the least time of any stage of any size that was measured: no more than that is dispatch.
func (f *Fitted) shortestStage(w Workload) time.Duration {
	least := time.Duration(0)
	for _, c := range f.Stages {
		if t := timeOf(c, w.sizes()[0]); least == 0 || t < least {
			least = t
		}
	}
	return least
}

// mostHost is the least time, or processor time, that a fitted row took for a batch: the host did not take longer.
func (f *Fitted) mostHost() time.Duration {
	var times []time.Duration
	for _, r := range f.fitted {
		times = append(times, seconds(r.Seconds))
		if r.CPU > 0 {
			times = append(times, seconds(r.CPU))
		}
	}
	return max(slices.Min(times), 1)
}

// miss is the sum of the squares of the relative errors over the fitted rows.
func (f *Fitted) miss(ctx context.Context) (sum float64, err error) {
	for _, row := range f.fitted {
		p, err := f.pace(ctx, row.Bytes, row.Schedule, row.Lanes)
		if err != nil {
			return 0, err
		}
		e := p.batch.Seconds()/row.Seconds - 1
		sum += e * e
	}
	return sum, nil
}
