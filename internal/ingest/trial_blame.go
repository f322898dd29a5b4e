package ingest

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// trierRetrial is a trier that runs parts of one batch again.
type trierRetrial struct {
	*trier
	pipe *streams.Pipeline
	g    *inflight.Batch
}

func (r trierRetrial) run(ctx context.Context, items []int) error {
	return r.trier.run(ctx, r.pipe, r.g, items)
}

func (r trierRetrial) probe(ctx context.Context) error { return r.trier.probe(ctx, r.pipe) }

func (r trierRetrial) aside(ctx context.Context, items []int, err error) error {
	return r.giveBack(ctx, r.g, items, err)
}

// probe has the device prove that it is well.
func (t *trier) probe(ctx context.Context, pipe *streams.Pipeline) error {
	t.ran = false // if this loses the device, it was not with a payload
	return pipe.Probe(ctx)
}

// blame finds those of items to blame, on which together the operators failed with err. Nothing is given up before the
// others were tried.
func (t *trier) blame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int, err error) error {
	since := t.w.evidence[pipe].batches()
	guilty, err := accuse(ctx, trierRetrial{t, pipe, g}, items, err)
	if err != nil {
		return t.withhold(ctx, g, items, err)
	}
	if len(guilty) == 0 {
		return nil
	}
	ruled, err := t.w.judge(pipe, g, guilty, comparison{since: since, idle: func() bool { return t.w.idle(ctx) }})
	for _, a := range guilty {
		switch ruled {
		case giveUp:
			g.Settle(a.item)
			t.w.giveUp(ctx, g.HandOver(a.item), results.OperatorError, a.err)
		case holdBack:
			return t.withhold(ctx, g, []int{a.item}, a.err)
		}
	}
	if err != nil {
		return t.withhold(ctx, g, items, err)
	}
	return nil
}

// withhold gives those of items back without blame that are not settled. It returns err if that is the end of the pipeline,
// and ctx's error: then the end of the worker gives them back.
func (t *trier) withhold(ctx context.Context, g *inflight.Batch, items []int, err error) error {
	t.ran = false
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, i := range items {
		if !g.IsSettled(i) {
			g.Settle(i)
			t.w.giveBack(&g.Items[i], err)
		}
	}
	if streams.Ended(err) {
		return err
	}
	return nil
}

// idle says whether the consumer has nothing else than the one payload that is tried: no other could show whether the
// device is well.
func (w *Worker) idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := w.consumer.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending <= 1
}
