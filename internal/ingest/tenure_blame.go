package ingest

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// errHeldBack ends a tenure whose first payload fails alone while nothing has come right since: the next one has what is
// behind it to compare it with.
var errHeldBack = errors.New("an operator fails on the first payload alone, and no other has come right since")

// groupRetrial runs parts of a tenure's failed batch again, while later batches go on. What comes right keeps its results
// until the whole group can be published, in order.
type groupRetrial struct {
	t      *tenure
	g      *inflight.Batch
	bodies map[int][]byte // by item
	unseen bool           // no observer is told of its batches: they are not for results
}

// rescue computes what it can of a batch that the operators failed on: afterwards g has the results of all payloads but those to
// blame, which are settled with their dead letters stored. An error ends the tenure, and blames nobody.
func (t *tenure) rescue(ctx context.Context, g *inflight.Batch) error {
	t.pipe.Report(&g.Record)
	t.w.tell(g, &g.Record)
	failure := fmt.Errorf("a batch of %d payloads from sequence %d on failed: %w", len(g.Items), g.Items[0].Sequence, g.Err)
	if !operatorFailed(g.Err) {
		return failure
	}
	t.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well",
		"payloads", len(g.Items), "error", g.Err)
	r := &groupRetrial{t: t, g: g, bodies: map[int][]byte{}}
	since := t.w.evidence[t.pipe].batches()
	all := g.Unsettled()
	if err := r.probe(ctx); err != nil {
		return err
	}
	err := r.run(ctx, all) // it may have been chance
	if operatorFailed(err) {
		var guilty []accused
		if guilty, err = accuse(ctx, r, all, err); err == nil && len(guilty) > 0 {
			err = t.condemn(ctx, g, guilty, since)
		}
	}
	if err != nil {
		return fmt.Errorf("%w, and computing it again: %w", failure, err)
	}
	r.assemble()
	return nil
}

// condemn stores the dead letters of payloads that are to blame.
func (t *tenure) condemn(ctx context.Context, g *inflight.Batch, guilty []accused, since uint64) (err error) {
	c := comparison{since: since, idle: func() bool { return false }}
	if len(guilty) == 1 && t.w.evidence[t.pipe].batches() == since && !t.besides {
		if c, err = t.compare(ctx, g, since); err != nil {
			return err
		}
	}
	ruled, err := t.w.judge(t.pipe, g, guilty, c)
	switch {
	case err != nil:
		return err
	case ruled != giveUp:
		return errHeldBack
	}
	for _, a := range guilty {
		if err := t.publishDeadLetter(ctx, g, a.item, results.OperatorError, a.err); err != nil {
			return err
		}
	}
	return nil
}

// compare computes payloads behind a group, one by one until one comes right, for want of others in the group to compare the
// accused with. Their results are nobody's: they are computed again when it is their turn. The consumer's metadata says so
// meanwhile: if the worker dies of one, the next owner goes without.
func (t *tenure) compare(ctx context.Context, g *inflight.Batch, since uint64) (comparison, error) {
	c := comparison{since: since}
	if err := t.mark(ctx, map[string]string{markBeside: fmt.Sprint(g.Items[0].Sequence)}); err != nil {
		return c, err
	}
	found := 0
	from := g.Items[len(g.Items)-1].Sequence
	for reads := 0; reads < fillMost && found < inARow && t.w.evidence[t.pipe].batches() == since; reads++ {
		raw, err := readNext(ctx, t.w.nc, t.w.opts.Stream, from+1, fmt.Sprint(t.partition, ".>"))
		if err != nil {
			return c, fmt.Errorf("read a payload to compare with: %w", err)
		}
		if raw == nil {
			break
		}
		from = raw.Sequence
		if !t.filtered(raw.Subject) || len(raw.Data) > t.w.maxBytes {
			continue
		}
		found++
		beside := &inflight.Batch{}
		beside.Add(t.stored(raw, 0))
		r := &groupRetrial{t: t, g: beside, bodies: map[int][]byte{}, unseen: true}
		switch err := r.run(ctx, []int{0}); {
		case operatorFailed(err):
			c.others++
		case err != nil:
			return c, err
		}
	}
	c.idle = func() bool { return found == 0 }
	return c, t.mark(ctx, map[string]string{markBeside: ""})
}

func (r *groupRetrial) probe(ctx context.Context) error {
	return r.t.pipe.ProbeUnder(ctx, r.t.e.gates[r.t.pipe].RLocker())
}

func (r *groupRetrial) aside(_ context.Context, _ []int, err error) error { return err }

// run computes items in a batch of their own, among those of other partitions.
func (r *groupRetrial) run(ctx context.Context, items []int) error {
	pipe, part := r.t.pipe, &inflight.Batch{Completed: make(chan struct{})}
	b, err := pipe.Acquire(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		part.Pack(b, r.g.Items[i])
	}
	gate := r.t.e.gates[pipe]
	gate.RLock()
	part.OnLeave = gate.RUnlock
	b.Owner = part
	if err := b.Submit(streams.ClosedByCount); err != nil {
		gate.RUnlock()
		b.Release()
		return err
	}
	select {
	case <-part.Completed:
	case <-ctx.Done():
		return ctx.Err() // it is on the device still, and its results are nobody's
	}
	if part.Err != nil {
		return part.Err
	}
	if !r.unseen {
		pipe.Report(&part.Record)
	}
	for n, i := range items {
		r.bodies[i] = part.Result(n)
	}
	return nil
}

// assemble gives the group the results of all its payloads, in order; those of the payloads to blame are empty.
func (r *groupRetrial) assemble() {
	r.g.Bodies.Clear()
	for i := range r.g.Items {
		r.g.Bodies.Add(append(r.g.Bodies.Data, r.bodies[i]...))
	}
	r.g.Err = nil
}
