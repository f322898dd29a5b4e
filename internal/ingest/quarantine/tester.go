package quarantine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// Deliveries settles deliveries that were tried in isolated batches. Shared delivery implements it.
type Deliveries interface {
	// Finish publishes the results of a completed batch and settles each of its deliveries.
	Finish(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, completed *streams.Batch, s *results.Buffers)

	// Store publishes the results of a batch's frames, which must be complete, and settles the frames. StoreLater does the same
	// once the frames are complete, and then recycles the batch. It doesn't block the caller.
	Store(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *results.Buffers)
	StoreLater(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch)

	// GiveBack requests the redelivery of d, at once or with a delay that depends on why.
	GiveBack(d *inflight.Delivery, why error)

	// GiveUp takes over d and publishes a dead letter for d. It waits only for a free publish slot.
	GiveUp(ctx context.Context, d inflight.Delivery, why results.Reason, cause error)

	// DeadLetter publishes a dead letter for d and settles d. If the dead letter can't be stored, it returns false and settles
	// nothing.
	DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool
}

// Isolation contains the dependencies and settings of a Controller or a Bisector.
type Isolation struct {
	Pool     *inflight.Pool
	Judge    *Judge
	Ends     Deliveries
	Attempts *Attempts
	Levels   Levels
	Limit    int // number of deliveries after which a payload is tried alone
	Log      *slog.Logger
}

// tester runs deliveries in isolated batches, and searches for the failing payload if an operator fails. Only one goroutine may
// use it. It has at most one batch on a device at a time.
type tester struct {
	Isolation
	part    *inflight.Batch // the deliveries on the device, which the pool keeps alive
	buffers results.Buffers
	ran     bool // whether the latest items reached the device
	lone    bool // whether the item runs alone on a device that has just passed a probe
	deaths  int  // number of processes that died while the payload ran alone, from the consumer's metadata; -1 if unknown
}

func newTester(i Isolation) *tester {
	t := &tester{Isolation: i, part: i.Pool.NewBatch()}
	t.part.ReturnTo = make(chan *streams.Batch, 1)
	return t
}

// giveBack gives back the unsettled deliveries of rows. If a single delivery is condemned, giveBack publishes its dead letter
// instead. It returns err only if the pipeline has ended.
func (t *tester) giveBack(ctx context.Context, g *inflight.Batch, rows []int, err error) error {
	items, open := g.ItemsOf(rows)
	for _, i := range items {
		if g.IsSettled(i) {
			continue
		}
		d := &g.Items[i]
		g.Settle(i)
		if len(items) == 1 && !open {
			if why, guilty := t.condemned(d, err); guilty && t.Ends.DeadLetter(ctx, d, why, err) {
				continue
			}
		}
		t.Ends.GiveBack(d, err)
	}
	if open {
		g.FailOpen(err)
	}
	if streams.Ended(err) {
		return err
	}
	t.Log.Error("the device refused a batch; its payloads are delivered again later", "payloads", len(items), "error", err)
	return nil
}

// withhold gives back the unsettled deliveries of rows without condemning any. It returns err if the pipeline has ended. If ctx
// has ended, it only returns ctx's error, and the worker gives the deliveries back when it ends.
func (t *tester) withhold(ctx context.Context, g *inflight.Batch, rows []int, err error) error {
	t.ran = false
	if ctx.Err() != nil {
		return ctx.Err()
	}
	items, open := g.ItemsOf(rows)
	for _, i := range items {
		if !g.IsSettled(i) {
			g.Settle(i)
			t.Ends.GiveBack(&g.Items[i], err)
		}
	}
	if open {
		g.FailOpen(err)
	}
	if streams.Ended(err) {
		return err
	}
	return nil
}

// condemned reports whether a payload that ran alone is given up because of err, and the reason. In one case, a kernel fault has
// broken the device for the second time while the payload ran alone. In the other case, the device had too little memory for the
// payload, and it was delivered too often.
func (t *tester) condemned(d *inflight.Delivery, err error) (results.Reason, bool) {
	switch {
	case !t.ran || !t.lone:
		return "", false
	case errors.Is(err, device.ErrKernelFault):
		return results.DeviceFault, t.deaths >= LoneRuns-1 || t.deaths < 0 && t.Levels.isGuilty(d.Level)
	}
	return results.MaxDeliver, errors.Is(err, device.ErrOutOfMemory) && d.NumDelivered > t.Limit
}

// run computes rows of g, in one batch if they fit, and settles the messages that are single records. It skips rows of settled
// deliveries, because an earlier call may have failed after some of its batches. The results of records stay in their frames. If
// run fails, the deliveries stay in g. If ctx has ended, they may be on the device and in t.part instead.
func (t *tester) run(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, rows []int) error {
	rows = g.Unfinished(rows)
	for len(rows) > 0 {
		n, err := t.runBatch(ctx, pipe, g, rows)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// runBatch computes the first rows, up to the size of a batch, and returns the number of computed rows.
func (t *tester) runBatch(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, rows []int) (n int, err error) {
	t.ran = false
	if err := ctx.Err(); err != nil {
		return 0, err // t.part's batch may still be on the device
	}
	b, err := t.Pool.Acquire(ctx, pipe)
	if err != nil {
		return 0, err
	}
	t.ran = true
	var singles []int
	for n < len(rows) && g.PackRow(b, rows[n]) {
		if f, i := g.Row(rows[n]); f == nil {
			d := g.Items[i]
			d.Cost = 0 // g still holds the memory
			t.part.Add(d)
			g.Settle(i)
			singles = append(singles, i)
		} else {
			t.part.AddRecord(f, i)
		}
		n++
	}
	if n == 0 {
		b.Release()
		return 0, errors.New("a payload of a quarantined message does not fit into an empty batch")
	}
	b.Owner = t.part
	b.StepThrough(ctx.Done())
	if err = b.Submit(streams.ClosedByCount); err == nil {
		select {
		case b = <-t.part.ReturnTo:
			err = b.Err()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if err == nil {
		t.Ends.Finish(ctx, pipe, t.part, b, &t.buffers)
	} else {
		t.part.DropRecords()
		g.Reclaim(singles)
		b.Release()
	}
	t.Pool.Finish(t.part)
	t.buffers.Tidy(t.Pool)
	return n, err
}

// storeFrames publishes the results of the unsettled frames among items of g, and settles them. All their rows must have been
// tried.
func (t *tester) storeFrames(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) {
	for _, i := range items {
		if d := g.Items[i]; d.Frame != nil && !g.IsSettled(i) {
			d.Cost = 0 // g still holds the memory
			t.part.Add(d)
			g.Settle(i)
		}
	}
	if len(t.part.Items) > 0 {
		t.Ends.Store(ctx, pipe, t.part, &t.buffers)
		t.part.Clear()
		t.buffers.Tidy(t.Pool)
	}
}

func (t *tester) probe(ctx context.Context, pipe *streams.Pipeline) error {
	t.ran = false // if the probe fails, no payload is the cause
	return pipe.Probe(ctx)
}

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

// tryAlone runs a quarantined payload alone. After LoneRuns deaths of processes that did so, the payload becomes a dead letter.
func (t *tester) tryAlone(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	d, rows := &g.Items[items[0]], g.RowsOf(items)
	t.Log.Warn("a payload that no worker has settled yet is tried alone", "sequence", d.Sequence,
		"deliveries", d.NumDelivered, "bytes", len(d.Msg.Data()))
	if err := t.probe(ctx, pipe); err != nil {
		return t.withhold(ctx, g, rows, err)
	}
	if f := d.Frame; f != nil && f.Framed() && f.Fault() == nil {
		if last, err := t.Attempts.last(ctx, d); err == nil {
			if err := t.tryFrame(ctx, pipe, g, items[0], last); !errors.Is(err, errNoNotes) {
				return err
			}
		}
	}
	begun, err := t.Attempts.begin(ctx, d)
	if err == nil && begun >= LoneRuns {
		g.Settle(items[0])
		t.Ends.GiveUp(ctx, g.HandOver(items[0]), results.DeviceFault, fmt.Errorf("%d workers died while it was alone on a device that had just computed right", begun))
		return nil
	}
	t.deaths = begun
	if err != nil {
		t.deaths = -1
	}
	if err != nil {
		t.Log.Warn("could not note with the consumer that a payload is tried alone: if it ends processes without a word it is not "+
			"given up (may this user make the API request CONSUMER.CREATE for it? see docs/security.md)", "sequence", d.Sequence, "error", err)
	}
	t.lone = true
	err = t.tryItems(ctx, pipe, g, items)
	t.lone = false
	if t.deaths >= 0 && !errors.Is(err, device.ErrKernelFault) {
		t.Attempts.erase(d)
	}
	return err
}

// tryFrame runs a quarantined frame alone, in runs of records from last.Next. It gives up only the records that break the device.
// If the server accepts no notes, tryFrame does nothing and returns errNoNotes.
func (t *tester) tryFrame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, item int, last attemptNote) error {
	d, rows := &g.Items[item], g.RowsOf([]int{item})
	runs, ok := last.Next(d.Frame.Records())
	if !ok {
		g.Settle(item)
		t.Ends.GiveUp(ctx, g.HandOver(item), results.DeviceFault, fmt.Errorf("more than %d of its records lost the device, each alone", maxCondemned))
		return nil
	}
	for _, i := range last.Condemned {
		d.Frame.Mark(i, record.DeviceFault)
	}
	for n, r := range runs {
		t.Log.Warn("records that no worker has settled yet are tried alone", "sequence", d.Sequence, "first", r.First, "records", r.Records,
			"condemned", len(last.Condemned))
		if err := t.Attempts.keep(ctx, d, last.Begin(r)); err != nil && n == 0 {
			return errNoNotes
		} else if err != nil {
			return t.withhold(ctx, g, rows, fmt.Errorf("could not note with the consumer which records are tried alone: %w", err))
		}
		if err := t.try(ctx, pipe, g, rows[r.First:][:r.Records]); err != nil {
			if !errors.Is(err, device.ErrKernelFault) {
				t.Attempts.erase(d)
			}
			return err
		}
		if g.IsSettled(item) { // the frame was given back
			break
		}
		if err := t.probe(ctx, pipe); err != nil {
			return t.withhold(ctx, g, rows, err)
		}
	}
	t.Attempts.erase(d)
	g.CollectedRows(rows)
	t.storeFrames(ctx, pipe, g, []int{item})
	return nil
}
