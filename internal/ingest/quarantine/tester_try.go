package quarantine

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// isolatedSearch is a Search with a tester.
type isolatedSearch struct {
	*tester
	pipe *streams.Pipeline
	g    *inflight.Batch
}

func (r isolatedSearch) Run(ctx context.Context, items []int) error {
	return r.tester.run(ctx, r.pipe, r.g, items)
}

func (r isolatedSearch) Probe(ctx context.Context) error { return r.tester.probe(ctx, r.pipe) }

func (r isolatedSearch) Aside(ctx context.Context, items []int, err error) error {
	return r.giveBack(ctx, r.g, items, err)
}

// probe checks that the device works.
func (t *tester) probe(ctx context.Context, pipe *streams.Pipeline) error {
	t.ran = false // if the probe loses the device, no payload is the cause
	return pipe.Probe(ctx)
}

// blame finds the items to blame, after the operators failed on all of them together with err. It gives up none before the others were
// tried.
func (t *tester) blame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int, err error) error {
	since := t.Judge.Batches(pipe)
	guilty, err := FindFailing(ctx, isolatedSearch{t, pipe, g}, items, err)
	if err != nil {
		return t.withhold(ctx, g, items, err)
	}
	if len(guilty) == 0 {
		return nil
	}
	ruled, err := t.Judge.Decide(pipe, g, guilty, Comparison{Since: since, Idle: func() bool { return t.Attempts.idle(ctx) }})
	for _, a := range guilty {
		switch ruled {
		case GiveUp:
			g.Settle(a.Item)
			t.Ends.GiveUp(ctx, g.HandOver(a.Item), results.OperatorError, a.Err)
		case holdBack:
			return t.withhold(ctx, g, []int{a.Item}, a.Err)
		}
	}
	if err != nil {
		return t.withhold(ctx, g, items, err)
	}
	return nil
}

// withhold gives the unsettled items back without blame. It returns err if err is the end of the pipeline. If ctx has ended it returns
// ctx's error, and the worker gives the items back at its end.
func (t *tester) withhold(ctx context.Context, g *inflight.Batch, items []int, err error) error {
	t.ran = false
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, i := range items {
		if !g.IsSettled(i) {
			g.Settle(i)
			t.Ends.GiveBack(&g.Items[i], err)
		}
	}
	if streams.Ended(err) {
		return err
	}
	return nil
}
