package quarantine

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// isolatedSearch implements Search with a tester.
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

// try runs items of g, which must fit into one batch, and settles each: published, given up, or given back. If an operator fails
// on them, it searches for the ones to blame. It returns an error if the device is lost or ctx ends. The unsettled items were
// then given back, or are in g or t.part, and the worker gives them back when it ends.
func (t *tester) try(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	err := t.run(ctx, pipe, g, items)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !OperatorFailed(err):
		return t.giveBack(ctx, g, items, err)
	}
	return t.blame(ctx, pipe, g, items, err)
}

// blame finds the items to blame, after the operators failed on all of them together with err. It gives up no item before the
// others were tried.
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
