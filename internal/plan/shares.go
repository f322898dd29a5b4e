package plan

import (
	"context"
	"slices"
	"time"
)

// leastShare bounds how much of its speed anything is taken to lose beside other work.
const leastShare = 0.4

// fitShares fits what shows only when all engines are at work: the shares, the dispatch within the stage times and,
// where they do not explain it and it is not given, the host's time. It looks for the figures with which the model
// comes nearest to the seconds of the rows with most lanes, one of each size.
func (f *Fitted) fitShares(ctx context.Context, w Workload, fitHost bool) error {
	for _, size := range w.sizes() {
		if row, some := w.widest(size); some {
			f.fitted = append(f.fitted, row)
		}
	}
	if len(f.fitted) == 0 {
		f.assume("No row has several lanes: engines are taken not to slow each other.")
		return ctx.Err()
	}
	most := f.mostHost()
	if fitHost {
		f.setHost(min(f.Host, most))
	}
	miss := func() (float64, error) { return f.miss(ctx) }
	knobs := []*knob{
		{set: func(at float64) { f.CopyShare = 1 - at*(1-leastShare) }},
		{set: func(at float64) { f.ComputeShare = 1 - at*(1-leastShare) }},
		{set: func(at float64) { f.DispatchWithin = time.Duration(at * float64(f.shortestStage(w))) }},
	}
	left, err := search(knobs, miss)
	if err != nil || !fitHost || left <= explained*float64(len(f.fitted)) {
		return err
	}
	host := &knob{at: f.Host.Seconds() / most.Seconds(), set: func(at float64) { f.setHost(time.Duration(at * float64(most))) }}
	host.set(host.at)
	_, err = search(append(knobs, host), miss)
	return err
}

// explained is a miss for each row that needs no more figures: an error of 1 %. A model with more of them than the
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
