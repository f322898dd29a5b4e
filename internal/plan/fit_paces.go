package plan

import (
	"context"
	"slices"
	"time"

	"millrace/internal/streams"
)

// lowestShare is the lower bound for the share of its speed that any stage keeps while other work runs.
const lowestShare = 0.4

// leastShare returns a lower estimate of the share of their speed that the stages kept in the widest rows, over all
// sizes together: there, they took no longer than their medians. Those medians may include waiting, so the true share
// may be larger.
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

// fitPaces fits the parameters that determine the intervals between batches: the dispatch, from rows with one lane; the
// shares and the dispatch within stage times, from rows with many lanes; and the host's time, if it is not given and
// the others leave more unexplained. It searches for the values with which the model is closest to the measured
// seconds. For each size it uses the rows with one lane and the rows with the most lanes.
func (f *Fitted) fitPaces(ctx context.Context, w Workload, fitHost bool) error {
	knobs := f.knobs(w)
	if len(knobs) == 0 {
		return ctx.Err()
	}
	most := f.mostHost()
	if fitHost {
		f.setHost(min(f.Host, most))
	}
	miss := func(enough float64) (float64, error) { return f.miss(ctx, enough) }
	at := make([]float64, len(knobs))
	left, err := search(knobs, at, miss)
	if err != nil || !fitHost || left <= explained*float64(len(f.fitted)) {
		return err
	}
	host := func(at float64) { f.setHost(time.Duration(at * float64(most))) }
	_, err = search(append(knobs, host), append(at, f.Host.Seconds()/most.Seconds()), miss)
	return err
}

// knobs selects the rows to fit and the parameters that they determine.
func (f *Fitted) knobs(w Workload) (knobs []knob) {
	var most time.Duration // upper bound for dispatch: a third of the shortest batch
	for _, size := range w.sizes() {
		if row, some := w.single(size); some {
			f.fitted = append(f.fitted, row)
			if t := seconds(row.Seconds) / time.Duration(streams.NumEngines); most == 0 || t < most {
				most = t
			}
		}
	}
	if most > 0 {
		knobs = append(knobs, func(at float64) { f.setDispatch(time.Duration(at * float64(most))) })
	} else {
		f.assume("No row has one lane with two buffers: streams are assumed to go from stage to stage without a gap.")
	}
	singles := len(f.fitted)
	for _, size := range w.sizes() {
		f.fitted = append(f.fitted, w.widest(size)...)
	}
	if len(f.fitted) == singles {
		f.assume("No row has several lanes: the engines are assumed not to slow each other down.")
		return knobs
	}
	shortest := f.shortestStage(w)
	leastCopy := f.leastShare(w, streams.CopyInEngine, streams.CopyOutEngine)
	leastCompute := f.leastShare(w, streams.ComputeEngine)
	return append(knobs,
		func(at float64) { f.CopyShare = 1 - at*(1-leastCopy) },
		func(at float64) { f.ComputeShare = 1 - at*(1-leastCompute) },
		func(at float64) { f.DispatchWithin = time.Duration(at * float64(shortest)) },
	)
}

// explained is the miss per row at which the fit is good enough: an error of 1 %. With more parameters than the rows
// determine, a model would fit these rows equally well and other rows worse.
const explained = 0.01 * 0.01

// shortestStage returns the shortest time of any stage at the smallest measured size, which is an upper bound for
// dispatch.
func (f *Fitted) shortestStage(w Workload) time.Duration {
	least := time.Duration(0)
	for _, c := range f.Stages {
		if t := timeOf(c, w.sizes()[0]); least == 0 || t < least {
			least = t
		}
	}
	return least
}

// mostHost returns the shortest wall or processor time per batch of the fitted rows, which is an upper bound for the
// host's time.
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

// miss returns the sum of the squared relative errors over the fitted rows. It stops as soon as the sum is enough.
func (f *Fitted) miss(ctx context.Context, enough float64) (sum float64, err error) {
	for _, row := range f.fitted {
		if sum >= enough {
			break
		}
		p, err := f.pace(ctx, row.Bytes, row.Schedule, row.Lanes)
		if err != nil {
			return 0, err
		}
		e := p.batch.Seconds()/row.Seconds - 1
		sum += e * e
	}
	return sum, nil
}
