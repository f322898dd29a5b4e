package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// In this file, the submitter packs a lease's inputs into batches and submits them. The collector encodes the results
// of each batch that the device has completed, in any order and for both delivery modes. The storer stores the
// results in the order of the inputs.

// leaseBatch is a batch that is packed but not submitted.
type leaseBatch struct {
	group  *inflight.Batch
	batch  *streams.Batch
	why    streams.CloseReason
	window *inflight.Window
}

// pack fills the next batch with up to the given number of payloads. It returns nil if there are no more inputs or ctx is done, and also if the
// pipeline has ended, with an error.
func pack(ctx context.Context, f *inflight.Batcher, payloads int) (*leaseBatch, error) {
	g, err := f.Reserve(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return nil, err
	}
	batch, why, err := f.Next(g, payloads)
	if batch == nil {
		return nil, err
	}
	return &leaseBatch{group: g, batch: batch, why: why, window: f.Window}, nil
}

// submitter submits a lease's inputs to the device.
type submitter struct {
	*leaseState
	batcher *inflight.Batcher
}

func newSubmitter(l *leaseState) *submitter {
	return &submitter{l, l.o.Pool.NewBatcher(l.pipe, l.out, l.o.Linger, l.window, l.ack.leave)}
}

// run packs inputs into batches and submits them, until there are no more inputs. While precaution.bound limits the
// batches, run submits one batch at a time and waits for its acknowledgement.
func (s *submitter) run(ctx context.Context) error {
	defer s.batcher.Drop()
	for s.batcher.Await() {
		if ctx.Err() != nil {
			return nil
		}
		cautious, bound := s.caution.bound(s.pipe.BatchPayloads())
		if cautious && s.caution.isAlone() {
			// Otherwise the death of the worker would prove nothing about the payload. The probe runs before pack reserves a batch, so that
			// probes don't wait for each other's batches.
			if err := s.device.Probe(ctx); err != nil {
				return err
			}
		}
		b, err := pack(ctx, s.batcher, min(bound, s.device.limit()))
		if b == nil {
			return err // if there is none, the server redelivers the inputs that were not submitted
		}
		if cautious {
			err = s.submitCautiously(ctx, b)
		} else {
			s.submitAmongOthers(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submitAmongOthers submits a batch to the device, where other batches may run too.
func (s *submitter) submitAmongOthers(b *leaseBatch) {
	b.group.OnLeave = s.device.share()
	s.submit(b)
}

// submitCautiously submits a batch that may kill the worker, and waits until it is acknowledged.
func (s *submitter) submitCautiously(ctx context.Context, b *leaseBatch) error {
	g := b.group
	n, last := len(g.Items), uint64(0) // n is 0 if the batch's only frame ends in a later batch
	if n > 0 {
		last = g.Items[n-1].Sequence
	}
	over := make(chan struct{})
	g.Finished = over
	if !s.caution.isAlone() {
		s.submitAmongOthers(b)
	} else if err := s.computeAlone(ctx, b); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	if s.acks.acknowledged() < last || ctx.Err() != nil {
		return nil // the batch failed, which ends the lease
	}
	return s.caution.relax(ctx, n, s.pipe.BatchPayloads())
}

// computeAlone computes a payload with nothing else on the device. If the worker dies during the computation, the payload
// is the cause. An annotation names the payload while it is on the device.
func (s *submitter) computeAlone(ctx context.Context, b *leaseBatch) error {
	defer s.device.isolate()()
	g := b.group
	g.OnLeave = func() {}
	if err := s.notes.annotate(ctx, map[string]string{annotationAlone: s.caution.trial(g)}); err != nil {
		b.batch.Release()
		s.o.Pool.Recycle(g)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	s.submit(b)
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the annotation stays, because the outcome for the payload is unknown
	}
	if failed && s.device.lost() != nil {
		return nil // lease.end handles the annotation
	}
	return s.notes.annotate(ctx, map[string]string{annotationAlone: ""})
}

// submit submits a batch to the device, and passes its group to the storer, which then owns it.
func (s *submitter) submit(b *leaseBatch) {
	g := b.group
	g.Completed = make(chan struct{})
	s.device.submit(b) // if the device refuses it, the storer searches for the failing payload
	s.order <- g       // the channel has space for every group
}

// sharedDevice is the state that the leases of all partitions on one device share.
type sharedDevice struct {
	pipe      *streams.Pipeline
	gate      sync.RWMutex // read-locked by batches on the device, write-locked by a payload that must run alone
	submitted atomic.Int32 // number of batches that are submitted and not settled
}

// pipelineDevice implements leaseDevice with a real pipeline.
type pipelineDevice struct {
	quarantine.Pipeline
	shared   *sharedDevice // nil with shared delivery, which has no use for its gate
	isolated atomic.Bool   // whether the next batch runs alone on the device
}

func newPipelineDevice(o *Options, shared *sharedDevice) *pipelineDevice {
	return &pipelineDevice{shared: shared, Pipeline: quarantine.Pipeline{
		Pipe: shared.pipe, Pool: o.Pool, Gate: shared.gate.RLocker(), Observe: func(g *inflight.Batch) { g.Report(o.Batches, o.Records) },
	}}
}

func (d *pipelineDevice) limit() int { return d.Pipe.BatchPayloads() }

func (d *pipelineDevice) submit(b *leaseBatch) bool {
	if d.isolated.Load() {
		b.batch.StepThrough(nil)
	}
	err := d.Pool.Submit(b.batch, b.group, b.window, b.why)
	if err != nil {
		record := *b.batch.ReadRecord()
		b.batch.Release()
		b.group.Complete(record, err)
	}
	return err == nil
}

func (d *pipelineDevice) share() (leave func()) {
	d.shared.gate.RLock()
	return d.shared.gate.RUnlock
}

func (d *pipelineDevice) isolate() (leave func()) {
	d.shared.gate.Lock()
	d.isolated.Store(true)
	return func() {
		d.isolated.Store(false)
		d.shared.gate.Unlock()
	}
}

func (d *pipelineDevice) lost() error { return d.Pipe.Err() }

func (d *pipelineDevice) fault() (f inflight.OperatorFault, known bool) {
	return inflight.FaultOf(d.Pipe)
}

// collector receives the completed batches of a pipeline, in any order.
type collector struct {
	o       *Options
	pipe    *streams.Pipeline
	buffers *inflight.FreeList[*results.Buffers] // at least one item per goroutine
	// store stores a batch that no goroutine waits for (see inflight.Batch.Completed) since start. It is nil if there are no such batches.
	store func(g *inflight.Batch, s *results.Buffers, start time.Duration)
}

// start starts n goroutines that receive batches until done is closed. When the device is lost, stop is called.
func (c *collector) start(wg *sync.WaitGroup, n int, done <-chan struct{}, stop context.CancelCauseFunc) {
	for range n {
		wg.Go(func() { c.run(done) })
	}
	wg.Go(func() {
		select {
		case <-c.pipe.Over():
			stop(c.pipe.Err())
		case <-done:
		}
	})
}

// run receives batches until done is closed.
func (c *collector) run(done <-chan struct{}) {
	for {
		select {
		case b := <-c.pipe.Completed():
			s := c.buffers.Take()
			c.collect(b, s)
			s.Tidy(c.o.Pool)
			c.buffers.Put(s)
		case <-done:
			return
		}
	}
}

// collect encodes the results of a batch, releases the device buffers, and completes the batch.
func (c *collector) collect(b *streams.Batch, s *results.Buffers) {
	g := b.Owner.(*inflight.Batch)
	awaited := g.Completed != nil
	start := c.pipe.Now()
	record, err := *b.ReadRecord(), b.Err()
	if err == nil {
		c.o.Judge.CameRight(c.pipe, g)
		g.StartPublish()
		c.o.Results.Encode(g, b, s)
	}
	b.Release()
	g.Complete(record, err)
	if !awaited {
		c.store(g, s, start)
	}
}

// storer stores the results of a lease's batches and acknowledges its inputs.
type storer struct {
	*leaseState
	buffers results.Buffers
}

// run publishes the results of the batches in stream order, and acknowledges each batch with one message. It returns
// when order is closed. After a failure, it publishes no further batches, and the server redelivers their inputs to the
// next lease.
func (s *storer) run(drainCtx context.Context) {
	defer s.buffers.Free(s.o.Pool)
	broken := false
	for g := range s.order {
		select {
		case <-g.Completed:
		case <-drainCtx.Done():
			broken = true // the batch is still on the device and uses g
			continue
		}
		if !broken {
			if err := s.storeBatch(drainCtx, g); err != nil {
				s.fail(err)
				broken = true
			}
		}
		over := g.Finished
		s.buffers.Tidy(s.o.Pool)
		s.o.Pool.Recycle(g)
		if over != nil {
			close(over)
		}
	}
}

// storeBatch stores the results of a batch, which it computes again first if it failed. Then it acknowledges the batch.
func (s *storer) storeBatch(drainCtx context.Context, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := s.rescue(drainCtx, g); err != nil {
			return err
		}
	}
	err := s.finish(drainCtx, s.pipe, g, &s.buffers, s.pipe.Now())
	if !failed { // after a failure, the batch has already been reported
		g.Report(s.o.Batches, s.o.Records)
	}
	return err
}
