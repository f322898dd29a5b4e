package quarantine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// Rerun computes rows of a batch in separate batches. It keeps the results until Collect writes them into the batch. Only one
// goroutine may use a Rerun. It has at most one batch on the device at a time.
type Rerun struct {
	Batch  *inflight.Batch
	Pipe   *streams.Pipeline
	Device Device // device of Pipe
	Judge  *Judge
	Policy Policy // used by Compute
	Limit  int    // number of deliveries or failures after which a payload is given up; see evidence.rule

	Ran    bool           // whether the latest rows reached the device
	bodies map[int][]byte // encoded results, by index in Batch.Items
}

// Device computes separate batches, while other batches may be on the device. Pipeline implements it.
type Device interface {
	// Run computes as many of rows as fit into a batch. It returns a batch with the results, and the number of computed
	// rows. ran reports whether they reached the device. If ctx ends, the rows may still be on the device.
	Run(ctx context.Context, g *inflight.Batch, rows []int) (part *inflight.Batch, n int, ran bool, err error)

	// Probe checks that the device works; see streams.Pipeline.Probe.
	Probe(ctx context.Context) error

	// Isolate waits until no batch is on the device. Until leave, only the batches and probes of this Device get there.
	Isolate() (leave func())

	// Lose ends the device because of err, and returns the error of its pipeline.
	Lose(err error) error
}

// Policy decides about payloads that can't be computed now. Each delivery mode implements it. If a method returns an error, Compute
// returns that error.
type Policy interface {
	// SetAside handles rows that failed with err, where err isn't an operator failure.
	SetAside(ctx context.Context, r *Rerun, rows []int, err error) error

	// Compare compares failing rows with other payloads, if necessary. since is the value of Judge.Batches before the search.
	Compare(ctx context.Context, r *Rerun, failing []Failing, since uint64) (Comparison, error)

	// HoldBack handles a failing row that the Judge doesn't give up yet.
	HoldBack(ctx context.Context, r *Rerun, failing Failing) error
}

// Compute computes rows. If the operators fail, it finds the failing rows. With the Judge's consent, it refuses a failing payload
// (see inflight.Batch.Refuse) or marks a failing record. On an error, some of the rows may have no results.
func (r *Rerun) Compute(ctx context.Context, rows []int) error {
	err := r.Run(ctx, rows)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !OperatorFailed(err):
		return r.Policy.SetAside(ctx, r, rows, err)
	}
	since := r.Judge.Batches(r.Pipe)
	failing, err := FindFailing(ctx, r, rows, err)
	if err != nil || len(failing) == 0 {
		return err
	}
	c, err := r.Policy.Compare(ctx, r, failing, since)
	if err != nil {
		return err
	}
	switch ruled, err := r.Judge.Decide(r.Pipe, r.Batch, failing, r.Limit, c); ruled {
	case DeviceNotWell:
		return r.Device.Lose(err)
	case holdBack:
		return r.Policy.HoldBack(ctx, r, failing[0])
	}
	for _, a := range failing {
		r.condemn(a)
	}
	return nil
}

// condemn gives up a row that fails alone. The other records of a frame keep their results.
func (r *Rerun) condemn(a Failing) {
	f, i := r.Batch.Row(a.Row)
	if f == nil {
		r.Batch.Refuse(i, a.Err)
		return
	}
	f.Mark(i, record.OperatorError)
	f.Blame(i, a.Err)
}

// Run computes rows, in one batch if they fit. It skips rows of settled deliveries, which SetAside may have given back.
func (r *Rerun) Run(ctx context.Context, rows []int) error {
	r.Ran = false
	for rows = r.Batch.Unfinished(rows); len(rows) > 0; {
		part, n, ran, err := r.Device.Run(ctx, r.Batch, rows)
		r.Ran = ran
		if err != nil {
			return err
		}
		r.keep(part, rows[:n])
		rows = rows[n:]
	}
	return nil
}

// keep keeps the results of part. The results of records are in their frames.
func (r *Rerun) keep(part *inflight.Batch, rows []int) {
	n := 0
	for _, row := range rows {
		f, i := r.Batch.Row(row)
		if f != nil {
			continue
		}
		if r.bodies == nil {
			r.bodies = map[int][]byte{}
		}
		r.bodies[i] = part.Result(n)
		if reason := part.Refusal(n); reason != nil {
			r.Batch.Refuse(i, reason)
		}
		n++
	}
}

// Probe checks that the device works. If the probe fails, no row is the cause of a failure.
func (r *Rerun) Probe(ctx context.Context) error {
	r.Ran = false
	return r.Device.Probe(ctx)
}

// SetAside implements Search.
func (r *Rerun) SetAside(ctx context.Context, rows []int, err error) error {
	return r.Policy.SetAside(ctx, r, rows, err)
}

// Missing returns the elements of rows that have no result yet. It includes all records of frames.
func (r *Rerun) Missing(rows []int) (missing []int) {
	for _, row := range rows {
		f, i := r.Batch.Row(row)
		if _, ok := r.bodies[i]; f != nil || !ok {
			missing = append(missing, row)
		}
	}
	return missing
}

// Collect writes the results of rows into the batch, which then has the result of each payload except the failing ones. rows must
// be all rows that were unsettled before the first call of Compute.
func (r *Rerun) Collect(rows []int) {
	g := r.Batch
	g.Bodies.Clear()
	for i := range g.Items {
		g.Bodies.Add(append(g.Bodies.Data, r.bodies[i]...))
	}
	g.Err = nil
	g.CollectedRows(rows)
}

// Pipeline implements Device with a pipeline.
type Pipeline struct {
	Pipe    *streams.Pipeline
	Pool    *inflight.Pool
	Gate    *sync.RWMutex         // read-locked while a separate batch or a probe is on the device; nil for none
	Observe func(*inflight.Batch) // called with each batch that was computed

	// Isolated is set while the Pipeline holds the gate's write lock, so that only its batches may get to the device.
	Isolated atomic.Bool
}

// Isolate implements Device.
func (p *Pipeline) Isolate() (leave func()) {
	if p.Gate == nil {
		return func() {}
	}
	p.Gate.Lock()
	p.Isolated.Store(true)
	return func() {
		p.Isolated.Store(false)
		p.Gate.Unlock()
	}
}

// Run implements Device.
func (p *Pipeline) Run(ctx context.Context, g *inflight.Batch, rows []int) (part *inflight.Batch, n int, ran bool, err error) {
	b, err := p.Pool.Acquire(ctx, p.Pipe)
	if err != nil {
		return nil, 0, false, err
	}
	defer p.Pool.Finish()
	part = g.NewPart()
	if n = g.PackRows(b, part, rows); n == 0 {
		b.Release()
		return nil, 0, false, errors.New("a payload of a batch does not fit into an empty batch")
	}
	if err := p.submit(ctx, b, part); err != nil {
		return nil, 0, true, err
	}
	p.Observe(part)
	return part, n, true, nil
}

// submit submits b, which has the rows of part, and waits until part is complete.
func (p *Pipeline) submit(ctx context.Context, b *streams.Batch, part *inflight.Batch) error {
	packed := &inflight.Packed{Batch: b, Groups: []*inflight.Batch{part}}
	if p.Gate != nil && !p.Isolated.Load() {
		p.Gate.RLock()
		packed.OnLeave = p.Gate.RUnlock
	}
	b.Owner = packed
	b.StepThrough(ctx.Done())
	if err := b.Submit(streams.ClosedByCount); err != nil {
		record := *b.ReadRecord()
		b.Release()
		packed.Complete(record, err)
	}
	select {
	case <-part.Completed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if part.Err != nil {
		part.DropRecords()
	}
	return part.Err
}

// Probe implements Device.
func (p *Pipeline) Probe(ctx context.Context) error {
	if p.Gate == nil || p.Isolated.Load() {
		return p.Pipe.Probe(ctx)
	}
	return p.Pipe.ProbeUnder(ctx, p.Gate.RLocker())
}

// Lose implements Device.
func (p *Pipeline) Lose(err error) error { return p.Pipe.Lose("blame", err) }

// Search runs parts of a failed batch again. A Rerun implements it.
type Search interface {
	// Run computes rows in a separate batch, and keeps their results if the batch succeeds.
	Run(ctx context.Context, rows []int) error

	// Probe checks that the device works.
	Probe(ctx context.Context) error

	// SetAside handles rows that failed with err, where err isn't an operator failure. If SetAside returns an error, the search ends.
	SetAside(ctx context.Context, rows []int, err error) error
}

// FindFailing returns the rows on which the operators fail alone, after they failed with err on a batch of rows. After it has
// tried all rows, it confirms each failure, and probes the device before and after the confirmation. On an error, it returns no
// rows, and some rows may not have been tried.
func FindFailing(ctx context.Context, r Search, rows []int, err error) ([]Failing, error) {
	if err := r.Probe(ctx); err != nil {
		return nil, err
	}
	suspects, err := search(ctx, r, rows, err, nil)
	if err != nil {
		return nil, err
	}
	return confirm(ctx, r, suspects)
}

// OperatorFailed reports whether a payload may be the cause of err. It returns false if the device is lost or not ready, memory
// ran out, or the context ended.
func OperatorFailed(err error) bool {
	return err != nil && !streams.Ended(err) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrNotReady) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// search bisects rows after the operators failed on them with err. It appends the rows that fail alone to found.
func search(ctx context.Context, r Search, rows []int, err error, found []Failing) ([]Failing, error) {
	if len(rows) == 1 {
		return append(found, Failing{rows[0], err}), nil
	}
	half := len(rows) / 2
	for _, part := range [][]int{rows[:half], rows[half:]} {
		err := r.Run(ctx, part)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			found, err = search(ctx, r, part, err, found)
		default:
			err = r.SetAside(ctx, part, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// confirm runs each suspect alone once more, between probes, and returns the rows on which the operators fail again.
func confirm(ctx context.Context, r Search, suspects []Failing) (guilty []Failing, err error) {
	for _, s := range suspects {
		if err := r.Probe(ctx); err != nil {
			return nil, err
		}
		one := []int{s.Row}
		err := r.Run(ctx, one)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			guilty = append(guilty, Failing{s.Row, err})
			err = nil
		default:
			err = r.SetAside(ctx, one, err)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(guilty) == 0 {
		return nil, nil
	}
	return guilty, r.Probe(ctx)
}
