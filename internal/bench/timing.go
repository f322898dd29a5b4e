package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"millrace/internal/streams"
)

// timingTolerance is how far stage times by events may be from those by the clock.
const timingTolerance = 0.05

// timingBatches is how many batches each round of event-timing looks at.
const timingBatches = 32

// eventTiming compares what device events say of the stages of serial batches with what the host's clock says of
// them. A host that waits for each stage sees its length and the cost of waiting for it. That cost is measured by
// the same schedule over batches of next to nothing, and taken off.
func (t *target) eventTiming(l *words) *contender {
	c, f := t.flow(groupSchedules, "event-timing", l, streams.Serial)
	c.measure = func(ctx context.Context, c *contender, seed uint64) error {
		clock, events, err := f.timeStages(ctx, l, seed)
		if err != nil {
			return err
		}
		empty := newWords(mix{}, scratchAlign)
		overClock, overEvents, err := f.timeStages(ctx, empty, seed)
		if err != nil {
			return err
		}
		c.row.Batches += timingBatches
		c.add(figureByClock, "x", (clock-(overClock-overEvents))/events)
		if off := math.Abs(median(c.samples(figureByClock)) - 1); len(c.samples(figureByClock)) == t.Rounds &&
			off > timingTolerance && l.bytes() == slices.Max(t.sizes()) { // beside a short stage the cost of waiting is too much

			t.note("event-timing: events and clock differ by %s on %s: do not trust stage times", percent(100*off), t.info.ID)
		}
		return nil
	}
	return c
}

// timeStages is how long the three stages of a batch take together, by the host's clock about Submit of a schedule
// that waits for each, and by the device's events: medians, in seconds.
func (f *flow) timeStages(ctx context.Context, l *words, seed uint64) (clock, events float64, err error) {
	cfg := f.cfg
	cfg.BatchBytes, cfg.Operators = l.bytes(), l.operators()
	p, err := streams.New(f.t.dev, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	held, err := fill(ctx, p, l, seed)
	if err != nil {
		return 0, 0, err
	}
	b := held[0]
	var byClock, byEvents []float64
	for i := range timingBatches {
		if i > 0 {
			b.Again()
		}
		took, record, err := timeBatch(ctx, p, b)
		if err != nil {
			return 0, 0, err
		}
		byClock = append(byClock, took.Seconds())
		byEvents = append(byEvents, stageSeconds(record))
	}
	if err := verify(held, l, seed); err != nil {
		return 0, 0, err
	}
	if median(byEvents) <= 0 {
		return 0, 0, errUnable{fmt.Errorf("the stages took no time on %s", f.t.info.ID)}
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

// stageSeconds is the time of the device stages together.
func stageSeconds(r *streams.Record) (sum float64) {
	for _, stage := range []streams.Stage{streams.CopyIn, streams.Compute, streams.CopyOut} {
		sum += r.Stages[stage].Duration().Seconds()
	}
	return sum
}
