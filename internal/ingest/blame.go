package ingest

import (
	"context"
	"fmt"

	"millrace/internal/streams"
)

// accused is a payload on which the operators failed alone.
type accused struct {
	item int // of the group
	err  error
}

// blame finds those of items to blame, on which together the operators failed with err. Nothing is given up before the
// others were tried, and before and after each failure alone the device has to compute payloads of known content right.
func (t *trier) blame(ctx context.Context, pipe *streams.Pipeline, g *group, items []int, err error) error {
	since := t.w.evidence[pipe].batches()
	if err := t.probe(ctx, pipe); err != nil {
		return t.withhold(ctx, g, items, err)
	}
	suspects, err := t.search(ctx, pipe, g, items, err, nil)
	if err != nil {
		return t.withhold(ctx, g, indices(suspects), err)
	}
	guilty, err := t.confirm(ctx, pipe, g, suspects)
	if err != nil || len(guilty) == 0 {
		return err
	}
	return t.judge(ctx, pipe, g, guilty, since)
}

// search tries each half of items, on which the operators failed with err, down to the payloads that fail alone, and adds
// those to found. What it has not come to when it fails is given back.
func (t *trier) search(ctx context.Context, pipe *streams.Pipeline, g *group, items []int, err error, found []accused) ([]accused, error) {
	if len(items) == 1 {
		return append(found, accused{items[0], err}), nil
	}
	half := len(items) / 2
	for _, part := range [][]int{items[:half], items[half:]} {
		err := t.run(ctx, pipe, g, part)
		switch {
		case err == nil:
			continue
		case operatorFailed(err):
			if found, err = t.search(ctx, pipe, g, part, err, found); err == nil {
				continue
			}
		case ctx.Err() == nil:
			if err = t.giveBack(ctx, g, part, err); err == nil {
				continue
			}
		}
		return found, err // what is left of items is in g, and the end of the pipeline or of the drain gives it back
	}
	return found, nil
}

// confirm runs each suspect alone once more, with probes before and behind, and returns those on which the operators fail
// again.
func (t *trier) confirm(ctx context.Context, pipe *streams.Pipeline, g *group, suspects []accused) (guilty []accused, err error) {
	for n, s := range suspects {
		if err := t.probe(ctx, pipe); err != nil {
			return nil, t.withhold(ctx, g, append(indices(guilty), indices(suspects[n:])...), err)
		}
		one := []int{s.item}
		switch err := t.run(ctx, pipe, g, one); {
		case err == nil: // it has come right
		case ctx.Err() != nil:
			return nil, err
		case operatorFailed(err):
			guilty = append(guilty, accused{s.item, err})
		default:
			if err := t.giveBack(ctx, g, one, err); err != nil {
				return nil, t.withhold(ctx, g, append(indices(guilty), indices(suspects[n+1:])...), err)
			}
		}
	}
	if err := t.probe(ctx, pipe); err != nil {
		return nil, t.withhold(ctx, g, indices(guilty), err)
	}
	return guilty, nil
}

// judge gives up what failed alone, holds it back, or stops the worker: see evidence.rule.
func (t *trier) judge(ctx context.Context, pipe *streams.Pipeline, g *group, guilty []accused, since uint64) error {
	failed := make([]*delivery, len(guilty))
	for n, a := range guilty {
		failed[n] = &g.items[a.item]
	}
	switch t.w.evidence[pipe].rule(failed, since, t.w.limit, func() bool { return t.w.idle(ctx) }) {
	case giveUp:
		for _, a := range guilty {
			g.settle(a.item)
			t.w.giveUp(ctx, g.items[a.item], OperatorError, a.err)
		}
		return nil
	case notWell:
		return t.withhold(ctx, g, indices(guilty), t.w.stopBlaming(pipe, failed, guilty[0].err))
	}
	a := guilty[0]
	t.w.sayHeldBack(failed[0], a.err)
	return t.withhold(ctx, g, []int{a.item}, a.err)
}

// probe has the device prove that it is well.
func (t *trier) probe(ctx context.Context, pipe *streams.Pipeline) error {
	t.ran = false // if this loses the device, it was not with a payload
	return pipe.Probe(ctx)
}

// withhold gives items back without blame, and returns err if it is the end of the pipeline or of ctx.
func (t *trier) withhold(ctx context.Context, g *group, items []int, err error) error {
	t.ran = false
	if ctx.Err() != nil {
		return ctx.Err() // the end of the worker gives them back
	}
	for _, i := range items {
		g.settle(i)
		t.w.giveBack(&g.items[i], err)
	}
	if lost(err) {
		return err
	}
	return nil
}

func indices(of []accused) (items []int) {
	for _, a := range of {
		items = append(items, a.item)
	}
	return items
}

// stopBlaming ends a pipeline on which payload after payload fails alone and none comes right.
func (w *Worker) stopBlaming(pipe *streams.Pipeline, failed []*delivery, cause error) error {
	n := max(len(failed), w.evidence[pipe].inRow())
	w.log.Error("payload after payload fails alone and none comes right, so none is to blame: the worker stops and gives them back; "+
		"if it goes on so after restarts on other nodes, an operator cannot take what the stream holds",
		"device", pipe.Device().ID, "payloads", n, "first_sequence", failed[0].sequence, "error", cause)
	return pipe.Lose("blame", fmt.Errorf("the operators fail on each of %d payloads alone, and no other payload came right in between: %w", n, cause))
}

// sayHeldBack says that a payload is held back.
func (w *Worker) sayHeldBack(d *delivery, cause error) {
	w.log.Warn("an operator fails on a payload alone, and no other payload has come right since: it is held back and tried again later",
		"stream", d.stream, "sequence", d.sequence, "deliveries", d.deliveries, "error", cause)
}

// idle says whether the consumer has nothing else than the one payload that is tried: no other could show whether the
// device is well.
func (w *Worker) idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := w.consumer.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending <= 1
}
