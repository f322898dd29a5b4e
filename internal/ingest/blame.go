package ingest

import (
	"context"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// retrial is how a search for the payloads to blame runs parts of a failed batch again.
type retrial interface {
	// run computes items of the batch in one of their own, and keeps the results where they come right.
	run(ctx context.Context, items []int) error

	// probe has the device prove that it is well.
	probe(ctx context.Context) error

	// aside takes items that could not be computed, though no operator failed on them. An error ends the search.
	aside(ctx context.Context, items []int, err error) error
}

// accused is a payload on which the operators failed alone.
type accused struct {
	item int // of the group
	err  error
}

// accuse finds those of items on which the operators fail alone, where together they failed with err. All others have been
// tried when it returns, and before and after each failure alone that counts the device has computed payloads of known
// content right. With an error nobody is accused, and some items may not have been tried.
func accuse(ctx context.Context, r retrial, items []int, err error) ([]accused, error) {
	if err := r.probe(ctx); err != nil {
		return nil, err
	}
	suspects, err := search(ctx, r, items, err, nil)
	if err != nil {
		return nil, err
	}
	return confirm(ctx, r, suspects)
}

// search tries each half of items, on which the operators failed with err, down to the payloads that fail alone, and adds
// those to found.
func search(ctx context.Context, r retrial, items []int, err error, found []accused) ([]accused, error) {
	if len(items) == 1 {
		return append(found, accused{items[0], err}), nil
	}
	half := len(items) / 2
	for _, part := range [][]int{items[:half], items[half:]} {
		err := r.run(ctx, part)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case operatorFailed(err):
			found, err = search(ctx, r, part, err, found)
		default:
			err = r.aside(ctx, part, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// confirm runs each suspect alone once more, with probes before and behind, and returns those on which the operators fail
// again.
func confirm(ctx context.Context, r retrial, suspects []accused) (guilty []accused, err error) {
	for _, s := range suspects {
		if err := r.probe(ctx); err != nil {
			return nil, err
		}
		one := []int{s.item}
		err := r.run(ctx, one)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case operatorFailed(err):
			guilty = append(guilty, accused{s.item, err})
			err = nil
		default:
			err = r.aside(ctx, one, err)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(guilty) == 0 {
		return nil, nil
	}
	return guilty, r.probe(ctx)
}

// comparison is what accused payloads are compared with.
type comparison struct {
	since  uint64      // evidence.batches as the search for them began
	others int         // other payloads that were computed alone to compare with, and failed too
	idle   func() bool // whether there is no other payload whose turn could come; it is asked only where it matters
}

// judge says what becomes of payloads of g that are accused: see evidence.rule. With notWell the pipeline is over.
func (w *Worker) judge(pipe *streams.Pipeline, g *inflight.Batch, guilty []accused, c comparison) (ruling, error) {
	failed := make([]*inflight.Delivery, len(guilty))
	for n, a := range guilty {
		failed[n] = &g.Items[a.item]
	}
	r := w.evidence[pipe].rule(failed, w.limit, c)
	d, cause := failed[0], guilty[0].err
	switch r {
	case notWell:
		n := max(len(failed), 1+c.others, w.evidence[pipe].inRow())
		w.log.Error("payload after payload fails alone and none comes right: the worker stops, and gives back all of them without blame "+
			"(see the runbook MillraceHeldBack)", "device", pipe.Device().ID, "payloads", n, "first_sequence", d.Sequence, "error", cause)
		return r, pipe.Lose("blame", fmt.Errorf("the operators fail on each of %d payloads alone, and no other payload came right in between: %w", n, cause))
	case holdBack:
		w.log.Warn("an operator fails on a payload alone, and no other payload has come right since: it is held back and tried again later",
			"stream", d.Stream, "sequence", d.Sequence, "deliveries", d.NumDelivered, "error", cause)
	}
	return r, nil
}
