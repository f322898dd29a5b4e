package ingest

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// errHeldBack ends a tenure whose first payload fails alone while nothing has come right since: the next one has what is
// behind it to compare it with.
var errHeldBack = errors.New("an operator fails on the first payload alone, and no other has come right since")

// groupSearch runs parts of a tenure's failed batch again, while later batches go on. What comes right keeps its results
// until the whole group can be published, in order.
type groupSearch struct {
	t      *tenure
	g      *inflight.Batch
	bodies map[int][]byte // by item
	unseen bool           // no observer is told of its batches: they are not for results
}

// rescue computes what it can of a batch that the operators failed on: afterwards g has the results of all payloads but those to
// blame, which are settled with their dead letters stored. An error ends the tenure, and blames nobody.
func (t *tenure) rescue(ctx context.Context, g *inflight.Batch) error {
	t.pipe.Report(&g.Record)
	g.Report(t.w.opts.Batches, &g.Record)
	failure := fmt.Errorf("a batch of %d payloads from sequence %d on failed: %w", len(g.Items), g.Items[0].Sequence, g.Err)
	if !quarantine.OperatorFailed(g.Err) {
		return failure
	}
	t.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well",
		"payloads", len(g.Items), "error", g.Err)
	r := &groupSearch{t: t, g: g, bodies: map[int][]byte{}}
	since := t.w.judge.Batches(t.pipe)
	all := g.Unsettled()
	if err := r.Probe(ctx); err != nil {
		return err
	}
	err := r.Run(ctx, all) // it may have been chance
	if quarantine.OperatorFailed(err) {
		var guilty []quarantine.Failing
		if guilty, err = quarantine.FindFailing(ctx, r, all, err); err == nil && len(guilty) > 0 {
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
func (t *tenure) condemn(ctx context.Context, g *inflight.Batch, guilty []quarantine.Failing, since uint64) (err error) {
	c := quarantine.Comparison{Since: since, Idle: func() bool { return false }}
	if len(guilty) == 1 && t.w.judge.Batches(t.pipe) == since && !t.besides {
		if c, err = t.compare(ctx, g, since); err != nil {
			return err
		}
	}
	ruled, err := t.w.judge.Decide(t.pipe, g, guilty, c)
	switch {
	case err != nil:
		return err
	case ruled != quarantine.GiveUp:
		return errHeldBack
	}
	for _, a := range guilty {
		if err := t.publishDeadLetter(ctx, g, a.Item, results.OperatorError, a.Err); err != nil {
			return err
		}
	}
	return nil
}

// compare computes payloads behind a group, one by one until one comes right, for want of others in the group to compare the
// accused with. Their results are nobody's: they are computed again when it is their turn. The consumer's metadata says so
// meanwhile: if the worker dies of one, the next owner goes without.
func (t *tenure) compare(ctx context.Context, g *inflight.Batch, since uint64) (quarantine.Comparison, error) {
	c := quarantine.Comparison{Since: since}
	if err := t.mark(ctx, map[string]string{markBeside: fmt.Sprint(g.Items[0].Sequence)}); err != nil {
		return c, err
	}
	found := 0
	from := g.Items[len(g.Items)-1].Sequence
	for reads := 0; reads < fillMost && found < quarantine.MaxInRow && t.w.judge.Batches(t.pipe) == since; reads++ {
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
		r := &groupSearch{t: t, g: beside, bodies: map[int][]byte{}, unseen: true}
		switch err := r.Run(ctx, []int{0}); {
		case quarantine.OperatorFailed(err):
			c.Others++
		case err != nil:
			return c, err
		}
	}
	c.Idle = func() bool { return found == 0 }
	return c, t.mark(ctx, map[string]string{markBeside: ""})
}

func (r *groupSearch) Probe(ctx context.Context) error {
	return r.t.pipe.ProbeUnder(ctx, r.t.e.gates[r.t.pipe].RLocker())
}

func (r *groupSearch) Aside(_ context.Context, _ []int, err error) error { return err }

// Run computes items in a batch of their own, among those of other partitions.
func (r *groupSearch) Run(ctx context.Context, items []int) error {
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
func (r *groupSearch) assemble() {
	r.g.Bodies.Clear()
	for i := range r.g.Items {
		r.g.Bodies.Add(append(r.g.Bodies.Data, r.bodies[i]...))
	}
	r.g.Err = nil
}
