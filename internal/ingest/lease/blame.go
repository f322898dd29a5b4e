package lease

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// errHeldBack ends a lease if a payload fails alone and no other payload has succeeded since the failure. The next
// lease compares the payload with later ones.
var errHeldBack = errors.New("an operator fails on the first payload alone, and no other has come right since")

// groupSearch runs parts of a lease's failed batch again, while later batches continue. It keeps successful results
// until assemble writes them into the group.
type groupSearch struct {
	b      *pipelineBatches
	g      *inflight.Batch
	bodies map[int][]byte // encoded results, by index in g.Items
	unseen bool           // whether the batches of Run aren't reported to observers
}

// rescue computes the payloads of a failed batch again. Afterwards g has the results of all payloads except the failing
// ones, which become dead letters. If rescue returns an error, the lease ends and no payload becomes a dead letter.
func (b *pipelineBatches) rescue(ctx context.Context, g *inflight.Batch) error {
	b.report(g)
	failure := fmt.Errorf("a batch of %d payloads from sequence %d on failed: %w", g.Messages(), g.Source(0).Sequence, g.Err)
	if !quarantine.OperatorFailed(g.Err) {
		return failure
	}
	b.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well",
		"payloads", g.Messages(), "error", g.Err)
	r := &groupSearch{b: b, g: g, bodies: map[int][]byte{}}
	since := b.o.Judge.Batches(b.pipe)
	all := g.UnsettledRows()
	if err := r.Probe(ctx); err != nil {
		return err
	}
	err := r.Run(ctx, all) // the failure may have been random
	if quarantine.OperatorFailed(err) {
		var guilty []quarantine.Failing
		if guilty, err = quarantine.FindFailing(ctx, r, all, err); err == nil && len(guilty) > 0 {
			err = b.condemn(ctx, g, guilty, since)
		}
	}
	if err != nil {
		return fmt.Errorf("%w, and computing it again: %w", failure, err)
	}
	r.assemble()
	g.CollectedRows(all)
	return nil
}

// condemn marks the failing payloads and records, which become dead letters when the batch is published. It returns
// errHeldBack if the evidence isn't sufficient.
func (b *pipelineBatches) condemn(ctx context.Context, g *inflight.Batch, guilty []quarantine.Failing, since uint64) (err error) {
	c := quarantine.Comparison{Since: since, Idle: func() bool { return false }}
	if len(quarantine.Sources(g, guilty)) == 1 && b.o.Judge.Batches(b.pipe) == since && !b.lease.caution.comparing {
		if c, err = b.compare(ctx, g, since); err != nil {
			return err
		}
	}
	ruled, err := b.o.Judge.Decide(b.pipe, g, guilty, c)
	switch {
	case err != nil:
		return err
	case ruled != quarantine.GiveUp:
		return errHeldBack
	}
	for _, a := range guilty {
		f, i := g.Row(a.Row)
		if f != nil {
			f.Mark(i, record.OperatorError)
			f.Blame(i, a.Err)
			continue
		}
		g.Refuse(i, a.Err)
	}
	return nil
}

// readMax is the maximum number of messages that compare reads.
const readMax = 64

// compare computes payloads that follow the group in the stream, one by one, until one succeeds. The group itself has
// no other payload to compare with. compare drops the results, because the payloads are computed again later. An
// annotation exists while compare runs. If the worker dies during that time, the next owner doesn't compare.
func (b *pipelineBatches) compare(ctx context.Context, g *inflight.Batch, since uint64) (quarantine.Comparison, error) {
	c := quarantine.Comparison{Since: since}
	if err := b.lease.notes.annotate(ctx, map[string]string{annotationBeside: fmt.Sprint(g.Source(0).Sequence)}); err != nil {
		return c, err
	}
	reader, found := b.lease.server.reader(), 0
	from := g.Source(g.Rows() - 1).Sequence
	for reads := 0; reads < readMax && found < quarantine.MaxInRow && b.o.Judge.Batches(b.pipe) == since; reads++ {
		raw, err := reader.read(ctx, from+1)
		if err != nil {
			return c, fmt.Errorf("read a payload to compare with: %w", err)
		}
		if raw == nil {
			break
		}
		from = raw.Sequence
		if !b.lease.stored.matches(raw.Subject) || len(raw.Data) > b.lease.maxBytes && !b.o.Pool.Splits() {
			continue
		}
		found++
		d := b.lease.stored.delivery(raw, 0)
		b.o.Pool.Unpack(&d)
		beside := &inflight.Batch{}
		beside.Add(d)
		r := &groupSearch{b: b, g: beside, bodies: map[int][]byte{}, unseen: true}
		err = r.Run(ctx, []int{0})
		b.o.Pool.Release(&d)
		switch {
		case quarantine.OperatorFailed(err):
			c.Others++
		case err != nil:
			return c, err
		}
	}
	c.Idle = func() bool { return found == 0 }
	return c, b.lease.notes.annotate(ctx, map[string]string{annotationBeside: ""})
}

func (r *groupSearch) Probe(ctx context.Context) error {
	return r.b.probe(ctx)
}

func (r *groupSearch) SetAside(_ context.Context, _ []int, err error) error { return err }

// Run computes rows in a separate batch, while batches of other partitions may be on the device.
func (r *groupSearch) Run(ctx context.Context, rows []int) error {
	pipe, part := r.b.pipe, &inflight.Batch{Completed: make(chan struct{})}
	batch, err := pipe.Acquire(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if !r.g.PackRow(batch, row) {
			batch.Release()
			return errors.New("a row of a batch does not fit into another batch")
		}
		if f, i := r.g.Row(row); f == nil {
			part.Add(r.g.Items[i])
		} else {
			part.AddRecord(f, i)
		}
	}
	part.OnLeave = r.b.share()
	batch.Owner = part
	batch.StepThrough(ctx.Done())
	if err := batch.Submit(streams.ClosedByCount); err != nil {
		part.OnLeave()
		batch.Release()
		part.DropRecords()
		return err
	}
	select {
	case <-part.Completed:
	case <-ctx.Done():
		return ctx.Err() // the batch is still on the device, and its results are ignored
	}
	if part.Err != nil {
		part.DropRecords()
		return part.Err
	}
	if !r.unseen {
		part.Record.Report(r.b.o.Records)
	}
	n := 0
	for _, row := range rows {
		if f, i := r.g.Row(row); f == nil {
			r.bodies[i] = part.Result(n)
			if reason := part.Refusal(n); reason != nil {
				r.g.Refuse(i, reason)
			}
			n++
		}
	}
	return nil
}

// assemble writes the results of all payloads into the group, in order. A failing payload gets an empty result.
func (r *groupSearch) assemble() {
	r.g.Bodies.Clear()
	for i := range r.g.Items {
		r.g.Bodies.Add(append(r.g.Bodies.Data, r.bodies[i]...))
	}
	r.g.Err = nil
}
