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
	// Store publishes the results of a batch and settles its deliveries. StoreLater does the same once the batch's frames are complete,
	// and then recycles the batch. It doesn't block the caller.
	Store(ctx context.Context, b *inflight.Batch)
	StoreLater(ctx context.Context, b *inflight.Batch)

	// GiveBack requests the redelivery of d, at once or with a delay that depends on why.
	GiveBack(d *inflight.Delivery, why error)

	// DeadLetter publishes a dead letter for d and settles d. If the dead letter can't be stored, it returns false and settles
	// nothing.
	DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool
}

// Isolation contains the dependencies and settings of a Controller or a Bisector.
type Isolation struct {
	Pool     *inflight.Pool
	Queue    *inflight.Queue // queue of the deliveries
	Judge    *Judge
	Ends     Deliveries
	Attempts *Attempts
	Levels   Levels
	Limit    int // number of deliveries after which a payload is tried alone
	Device   func(*streams.Pipeline) Device
	Log      *slog.Logger
}

// tester computes isolated batches, and settles their deliveries. It is the Policy of shared delivery. Only one goroutine may use
// it.
type tester struct {
	Isolation
	part   *inflight.Batch // deliveries of an isolated batch, which the pool keeps alive
	lone   bool            // whether the payload runs alone on a device that has just passed a probe
	deaths int             // number of processes that died while the payload ran alone, from the consumer's metadata; -1 if unknown
}

func newTester(i Isolation) *tester { return &tester{Isolation: i, part: i.Pool.NewBatch(i.Queue)} }

func (t *tester) rerun(pipe *streams.Pipeline, g *inflight.Batch) *Rerun {
	return &Rerun{Batch: g, Pipe: pipe, Device: t.Device(pipe), Judge: t.Judge, Policy: t, Limit: t.Limit}
}

// isolate moves items of g to an isolated batch, computes them, and settles them. A single item of a level for isolation is tried
// alone. It returns an error if the device is lost or ctx ends. If ctx ends, unsettled deliveries stay in g or t.part, and the
// worker gives them back.
func (t *tester) isolate(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, i := range items {
		g.Settle(i)
		t.part.Add(g.HandOver(i))
	}
	r := t.rerun(pipe, t.part)
	rows := t.part.UnsettledRows()
	var err error
	if len(items) == 1 && t.part.Items[0].Level >= t.Levels.AloneLevel() {
		err = t.tryAlone(ctx, r, rows)
	} else {
		err = r.Compute(ctx, rows)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.collect(r, rows, err)
	t.Ends.Store(ctx, t.part)
	t.Pool.Empty(t.part)
	if streams.Ended(err) {
		return err
	}
	return nil
}

// collect collects the results of rows. After err, it gives back the deliveries without a result.
func (t *tester) collect(r *Rerun, rows []int, err error) {
	if err != nil {
		t.giveBack(r.Batch, r.Missing(rows), err)
	}
	r.Collect(rows)
}

// giveBack gives back the unsettled deliveries of rows.
func (t *tester) giveBack(g *inflight.Batch, rows []int, why error) {
	items, open := g.ItemsOf(rows)
	for _, i := range items {
		if !g.IsSettled(i) {
			g.Settle(i)
			t.Ends.GiveBack(&g.Items[i], why)
		}
	}
	if open {
		g.FailOpen(why)
	}
}

// SetAside implements Policy. It gives back the deliveries of rows, or publishes the dead letter of a single condemned delivery. It
// returns err only if the pipeline has ended.
func (t *tester) SetAside(ctx context.Context, r *Rerun, rows []int, err error) error {
	g := r.Batch
	if items, open := g.ItemsOf(rows); len(items) == 1 && !open && r.Ran && !g.IsSettled(items[0]) {
		d := &g.Items[items[0]]
		if why, guilty := t.condemned(d, err); guilty && t.Ends.DeadLetter(ctx, d, why, err) {
			g.Settle(items[0])
		}
	}
	t.giveBack(g, rows, err)
	if streams.Ended(err) {
		return err
	}
	t.Log.Error("the device refused a batch; its payloads are delivered again later", "rows", len(rows), "error", err)
	return nil
}

// condemned reports whether a payload that ran alone is given up because of err, and the reason. In one case, a kernel fault has
// broken the device for the second time while the payload ran alone. In the other case, the device had too little memory for the
// payload, and it was delivered too often.
func (t *tester) condemned(d *inflight.Delivery, err error) (results.Reason, bool) {
	switch {
	case !t.lone:
		return "", false
	case errors.Is(err, device.ErrKernelFault):
		return results.DeviceFault, t.deaths >= LoneRuns-1 || t.deaths < 0 && t.Levels.isGuilty(d.Level)
	}
	return results.MaxDeliver, errors.Is(err, device.ErrOutOfMemory) && d.NumDelivered > t.Limit
}

// Compare implements Policy. The Judge compares a payload that fails alone with the payloads that come later.
func (t *tester) Compare(ctx context.Context, _ *Rerun, _ []Failing, since uint64) (Comparison, error) {
	return Comparison{Since: since, Idle: func() bool { return t.Attempts.isIdle(ctx) }}, nil
}

// HoldBack implements Policy. It gives the payload back.
func (t *tester) HoldBack(_ context.Context, r *Rerun, failing Failing) error {
	t.giveBack(r.Batch, []int{failing.Row}, failing.Err)
	return nil
}

// tryAlone computes rows, the rows of a quarantined payload, with nothing else on the device. If LoneRuns processes have died while they ran the payload
// alone, tryAlone refuses it.
func (t *tester) tryAlone(ctx context.Context, r *Rerun, rows []int) error {
	defer r.Device.Isolate()()
	d := &r.Batch.Items[0]
	t.Log.Warn("a payload that no worker has settled yet is tried alone", "sequence", d.Sequence,
		"deliveries", d.NumDelivered, "bytes", len(d.Msg.Data()))
	if err := r.Probe(ctx); err != nil {
		return err
	}
	var begun int
	var err error
	if f := d.Frame; f != nil && f.Framed() && f.Fault() == nil {
		if err = t.tryFrame(ctx, r, rows); !errors.Is(err, errNoNotes) {
			return err
		}
	} else if begun, err = t.Attempts.begin(ctx, d); err == nil && begun >= LoneRuns {
		return t.giveUp(ctx, r, fmt.Errorf("%d workers died while it ran alone on a device that had just passed a probe", begun))
	}
	t.deaths = begun
	if err != nil {
		t.deaths = -1
		t.Log.Warn("could not note with the consumer that a payload is tried alone: if it ends processes without a word it is not "+
			"given up (may this user make the API request CONSUMER.CREATE for it? see docs/security.md)", "sequence", d.Sequence, "error", err)
	}
	t.lone = true
	err = r.Compute(ctx, rows)
	t.lone = false
	if t.deaths >= 0 && !errors.Is(err, device.ErrKernelFault) {
		t.Attempts.erase(d)
	}
	return err
}

// giveUp publishes the dead letter of the isolated payload. If it can't be stored, the payload is given back.
func (t *tester) giveUp(ctx context.Context, r *Rerun, cause error) error {
	if !t.Ends.DeadLetter(ctx, &r.Batch.Items[0], results.DeviceFault, cause) {
		return cause
	}
	r.Batch.Settle(0)
	return nil
}

// tryFrame computes a quarantined frame alone, in the runs of records that follow from the last note. It gives up only the records
// that break the device. If the server accepts no notes, tryFrame does nothing and returns errNoNotes.
func (t *tester) tryFrame(ctx context.Context, r *Rerun, rows []int) error {
	d := &r.Batch.Items[0]
	last, err := t.Attempts.last(ctx, d)
	if err != nil {
		return fmt.Errorf("could not read which records were tried alone: %w", err)
	}
	runs, ok := last.Next(d.Frame.Records())
	if !ok {
		return t.giveUp(ctx, r, fmt.Errorf("more than %d of its records each lost the device when they ran alone", maxCondemned))
	}
	for _, i := range last.Condemned {
		d.Frame.Mark(i, record.DeviceFault)
	}
	for n, run := range runs {
		t.Log.Warn("records that no worker has settled yet are tried alone", "sequence", d.Sequence, "first", run.First, "records", run.Records,
			"condemned", len(last.Condemned))
		if err := t.Attempts.keep(ctx, d, last.Begin(run)); err != nil && n == 0 {
			return errNoNotes
		} else if err != nil {
			return fmt.Errorf("could not note in the consumer's metadata which records are tried alone: %w", err)
		}
		if err := r.Compute(ctx, rows[run.First:][:run.Records]); err != nil {
			if !errors.Is(err, device.ErrKernelFault) {
				t.Attempts.erase(d)
			}
			return err
		}
		if r.Batch.IsSettled(0) { // the frame was given back
			break
		}
		if err := r.Probe(ctx); err != nil {
			return err
		}
	}
	t.Attempts.erase(d)
	return nil
}

// failed is a batch on which an operator failed.
type failed struct {
	pipe *streams.Pipeline
	g    *inflight.Batch // the deliveries, which hold memory until they are settled
}

// Bisector searches failed batches for the payloads that cause the failures, one batch at a time.
type Bisector struct {
	queue chan failed
	trier *tester
}

// NewBisector returns a Bisector with a queue for up to limit batches. The deliveries of further batches are given back.
func NewBisector(i Isolation, limit int) *Bisector {
	return &Bisector{queue: make(chan failed, limit), trier: newTester(i)}
}

// Refused takes over a batch that failed with err. If an operator may be the cause, Run will search for the failing payload.
// Otherwise, or if the queue is full, the batch's deliveries are given back.
func (s *Bisector) Refused(pipe *streams.Pipeline, g *inflight.Batch, err error) {
	if OperatorFailed(err) {
		payloads := len(g.Items) // read before the send, because Run may recycle g at once
		select {
		case s.queue <- failed{pipe, g}:
			s.trier.Log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well", "payloads", payloads, "error", err)
			return
		default:
		}
	}
	s.giveBack(g, err)
	if !streams.Ended(err) {
		s.trier.Log.Error("the device refused a batch; its payloads are delivered again later", "error", err)
	}
}

// Run searches one failed batch after another until done is closed.
func (s *Bisector) Run(done <-chan struct{}, drainCtx context.Context) {
	for {
		select {
		case f := <-s.queue:
			s.search(drainCtx, f)
		case <-done:
			return
		}
	}
}

// search computes a failed batch again, and settles its deliveries.
func (s *Bisector) search(ctx context.Context, f failed) {
	r, rows := s.trier.rerun(f.pipe, f.g), f.g.UnsettledRows()
	err := r.Probe(ctx)
	if err == nil {
		err = r.Compute(ctx, rows)
	}
	if ctx.Err() != nil {
		s.giveBack(f.g, ctx.Err())
		return
	}
	s.trier.collect(r, rows, err)
	s.trier.Ends.StoreLater(ctx, f.g) // some records of its frames may be in batches that are searched later
}

// giveBack gives back the unsettled deliveries of g, and recycles g.
func (s *Bisector) giveBack(g *inflight.Batch, why error) {
	s.trier.giveBack(g, g.UnsettledRows(), why)
	s.trier.Pool.Recycle(g)
}
