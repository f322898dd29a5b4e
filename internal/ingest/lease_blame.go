package ingest

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/streams"
)

// errHeldBack ends a lease whose first payload fails alone while no other has come right since. The next lease compares it
// with what is behind it.
var errHeldBack = errors.New("an operator fails on the first payload alone, and no other has come right since")

// groupRetrial runs parts of a lease's failed batch again, while later batches go on. It keeps the results of what comes right
// until the whole group can be published, in order.
type groupRetrial struct {
	b      *pipelineBatches
	g      *group
	bodies map[int][]byte // by item
	unseen bool           // its batches are not for results, and observers are not told of them
}

// rescue computes what it can of a batch that the operators failed on. Afterwards g has the results of all payloads except
// those to blame, which are settled with their dead letters stored. An error ends the lease, and blames nobody.
func (b *pipelineBatches) rescue(ctx context.Context, g *group) error {
	b.report(g)
	failure := fmt.Errorf("a batch of %d payloads from sequence %d on failed: %w", len(g.items), g.items[0].sequence, g.failed)
	if !operatorFailed(g.failed) {
		return failure
	}
	b.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well",
		"payloads", len(g.items), "error", g.failed)
	r := &groupRetrial{b: b, g: g, bodies: map[int][]byte{}}
	since := b.w.evidence[b.pipe].batches()
	all := unsettled(g)
	if err := r.probe(ctx); err != nil {
		return err
	}
	err := r.run(ctx, all) // it may have been chance
	if operatorFailed(err) {
		var guilty []accused
		if guilty, err = accuse(ctx, r, all, err); err == nil && len(guilty) > 0 {
			err = b.condemn(ctx, g, guilty, since)
		}
	}
	if err != nil {
		return fmt.Errorf("%w, and computing it again: %w", failure, err)
	}
	r.assemble()
	return nil
}

// condemn stores the dead letters of payloads that are to blame.
func (b *pipelineBatches) condemn(ctx context.Context, g *group, guilty []accused, since uint64) (err error) {
	c := comparison{since: since, idle: func() bool { return false }}
	if len(guilty) == 1 && b.w.evidence[b.pipe].batches() == since && !b.l.comparing {
		if c, err = b.compare(ctx, g, since); err != nil {
			return err
		}
	}
	ruled, err := b.w.judge(b.pipe, g, guilty, c)
	switch {
	case err != nil:
		return err
	case ruled != giveUp:
		return errHeldBack
	}
	for _, a := range guilty {
		d := &g.items[a.item]
		if err := b.l.host.publishDeadLetter(ctx, d, OperatorError, a.err); err != nil {
			return err
		}
		b.l.settled(g, a.item)
	}
	return nil
}

// compare computes payloads behind a group, one by one until one comes right, because the group has no others to compare the
// accused with. It drops their results: they are computed again in their turn. The annotations say so meanwhile. If the
// worker dies of one of them, the next owner compares nothing.
func (b *pipelineBatches) compare(ctx context.Context, g *group, since uint64) (comparison, error) {
	c := comparison{since: since}
	if err := b.l.annotate(ctx, map[string]string{annotationBeside: fmt.Sprint(g.items[0].sequence)}); err != nil {
		return c, err
	}
	found := 0
	from := g.items[len(g.items)-1].sequence
	for reads := 0; reads < fillMost && found < inARow && b.w.evidence[b.pipe].batches() == since; reads++ {
		raw, err := b.l.server.read(ctx, from+1)
		if err != nil {
			return c, fmt.Errorf("read a payload to compare with: %w", err)
		}
		if raw == nil {
			break
		}
		from = raw.Sequence
		if !b.l.filtered(raw.Subject) || len(raw.Data) > b.l.maxBytes {
			continue
		}
		found++
		beside := &group{}
		beside.add(b.l.stored(raw, 0))
		r := &groupRetrial{b: b, g: beside, bodies: map[int][]byte{}, unseen: true}
		switch err := r.run(ctx, []int{0}); {
		case operatorFailed(err):
			c.others++
		case err != nil:
			return c, err
		}
	}
	c.idle = func() bool { return found == 0 }
	return c, b.l.annotate(ctx, map[string]string{annotationBeside: ""})
}

func (r *groupRetrial) probe(ctx context.Context) error {
	return r.b.probe(ctx)
}

func (r *groupRetrial) aside(_ context.Context, _ []int, err error) error { return err }

// run computes items in their own batch, among those of other partitions.
func (r *groupRetrial) run(ctx context.Context, items []int) error {
	pipe, part := r.b.pipe, &group{completed: make(chan struct{})}
	batch, err := pipe.Acquire(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		appendTo(batch, part, r.g.items[i])
	}
	part.leave = r.b.share()
	r.b.w.flying[pipe][batch.Slot()] = part
	if err := batch.Submit(streams.ClosedByCount); err != nil {
		part.leave()
		batch.Release()
		return err
	}
	select {
	case <-part.completed:
	case <-ctx.Done():
		return ctx.Err() // it is on the device still; nobody takes its results
	}
	if part.failed != nil {
		return part.failed
	}
	if !r.unseen {
		pipe.Report(&part.record)
	}
	for n, i := range items {
		r.bodies[i] = part.body(n)
	}
	return nil
}

// assemble gives the group the results of all its payloads, in order; those of the payloads to blame are empty.
func (r *groupRetrial) assemble() {
	r.g.bodies, r.g.ends = r.g.bodies[:0], r.g.ends[:0]
	for i := range r.g.items {
		r.g.bodies = append(r.g.bodies, r.bodies[i]...)
		r.g.ends = append(r.g.ends, len(r.g.bodies))
	}
	r.g.failed = nil
}
