package bench

import (
	"context"
	"math"
	"slices"
	"time"

	"millrace/internal/streams"
)

// timingTolerance is the permitted relative difference between stage times from events and from the clock.
const timingTolerance = 0.05

// timingBatches is the number of batches in each round of event-timing.
const timingBatches = 32

// eventTiming compares two measurements of the stage times of serial batches: by device events and by the host's clock.
// If the host waits for each stage, its clock shows the stage's length plus the cost of waiting. That cost is measured
// with the same schedule over almost empty batches, and subtracted.
func (t *target) eventTiming(l *words) *Case {
	c, f := t.flow("event-timing", l, streams.Serial)
	c.Measure = func(ctx context.Context, c *Case, seed uint64) error {
		clock, events, err := f.timeStages(ctx, l, seed)
		if err != nil {
			return err
		}
		empty := newWords(mix{}, scratchAlign)
		overClock, overEvents, err := f.timeStages(ctx, empty, seed)
		if err != nil {
			return err
		}
		c.Row.Batches += timingBatches
		c.Add(figureByClock, "x", (clock-(overClock-overEvents))/events)
		t.warnOfTiming(c)
		return nil
	}
	return c
}

// warnOfTiming adds a note after the last round if events and clock disagree. It checks the largest batches only:
// compared with a short stage the cost of waiting is too large.
func (t *target) warnOfTiming(c *Case) {
	rounds := c.figure(figureByClock)
	if len(rounds) < t.Rounds || c.Row.BatchBytes != slices.Max(t.sizes()) {
		return
	}
	if off := math.Abs(median(rounds) - 1); off > timingTolerance {
		t.Note("event-timing: events and clock differ by %s on %s. Don't rely on stage times.", percent(100*off), t.info.ID)
	}
}

// timeStages returns the total time of a batch's three stages, in seconds: by the host's clock around Submit, which
// waits for each stage, and by the device's events. Both are medians.
func (f *flow) timeStages(ctx context.Context, l *words, seed uint64) (clock, events float64, err error) {
	of := &flow{t: f.t, cfg: f.cfg}
	of.cfg.BatchBytes, of.cfg.Operators = l.bytes(), l.operators()
	var byClock, byEvents []float64
	err = of.withPipeline(func(p *streams.Pipeline) error {
		held, err := fill(ctx, p, l, seed)
		if err != nil {
			return err
		}
		for i := range timingBatches {
			if i > 0 {
				held[0].Again()
			}
			took, record, err := timeBatch(ctx, p, held[0])
			if err != nil {
				return err
			}
			byClock = append(byClock, took.Seconds())
			byEvents = append(byEvents, stageSeconds(record))
		}
		return verify(held, l, seed)
	})
	if err != nil {
		return 0, 0, err
	}
	if median(byEvents) <= 0 {
		return 0, 0, Unable("the stages took no time on %s", f.t.info.ID)
	}
	return median(byClock), median(byEvents), nil
}

func timeBatch(ctx context.Context, p *streams.Pipeline, b *streams.Batch) (time.Duration, *streams.Record, error) {
	start := time.Now()
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	back, _, err := receive(ctx, p)
	if err != nil {
		return 0, nil, err
	}
	return took, back.ReadRecord(), nil
}

// stageSeconds returns the total time of the three device stages.
func stageSeconds(r *streams.Record) (sum float64) {
	for _, stage := range []streams.Stage{streams.CopyIn, streams.Compute, streams.CopyOut} {
		sum += r.Stages[stage].Duration().Seconds()
	}
	return sum
}
