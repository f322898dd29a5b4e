package quarantine

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// isolatedSearch implements Search with a tester.
type isolatedSearch struct {
	*tester
	pipe *streams.Pipeline
	g    *inflight.Batch
}

func (r isolatedSearch) Run(ctx context.Context, rows []int) error {
	return r.tester.run(ctx, r.pipe, r.g, rows)
}

func (r isolatedSearch) Probe(ctx context.Context) error { return r.tester.probe(ctx, r.pipe) }

func (r isolatedSearch) SetAside(ctx context.Context, rows []int, err error) error {
	return r.giveBack(ctx, r.g, rows, err)
}

// try runs rows of g. It publishes, gives up or gives back each message that is a single record. The results of records stay in
// their frames. If an operator fails, try searches for the failing rows. It returns an error if the device is lost or ctx ends.
// Unsettled deliveries are then given back, or the worker gives them back from g or t.part when it ends.
func (t *tester) try(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, rows []int) error {
	err := t.run(ctx, pipe, g, rows)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !OperatorFailed(err):
		return t.giveBack(ctx, g, rows, err)
	}
	return t.blame(ctx, pipe, g, rows, err)
}

// tryItems runs the rows of deliveries of g and settles each delivery.
func (t *tester) tryItems(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	rows := g.RowsOf(items)
	if err := t.try(ctx, pipe, g, rows); err != nil {
		return err
	}
	g.CollectedRows(rows)
	t.storeFrames(ctx, pipe, g, items)
	return nil
}

// blame finds the failing rows after the operators failed with err on all rows together. It gives up no row before all other rows
// were tried.
func (t *tester) blame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, rows []int, err error) error {
	since := t.Judge.Batches(pipe)
	guilty, err := FindFailing(ctx, isolatedSearch{t, pipe, g}, rows, err)
	if err != nil {
		return t.withhold(ctx, g, rows, err)
	}
	if len(guilty) == 0 {
		return nil
	}
	ruled, err := t.Judge.Decide(pipe, g, guilty, Comparison{Since: since, Idle: func() bool { return t.Attempts.isIdle(ctx) }})
	for _, a := range guilty {
		switch ruled {
		case GiveUp:
			t.condemn(ctx, g, a)
		case holdBack:
			return t.withhold(ctx, g, []int{a.Row}, a.Err)
		}
	}
	if err != nil {
		return t.withhold(ctx, g, rows, err)
	}
	return nil
}

// condemn gives up a row that fails alone. The other records of a frame keep their results.
func (t *tester) condemn(ctx context.Context, g *inflight.Batch, a Failing) {
	f, i := g.Row(a.Row)
	if f != nil {
		f.Mark(i, record.OperatorError)
		f.Blame(i, a.Err)
		return
	}
	g.Settle(i)
	t.Ends.GiveUp(ctx, g.HandOver(i), results.OperatorError, a.Err)
}
