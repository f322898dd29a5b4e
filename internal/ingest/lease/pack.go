package lease

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// leaseBatches packs a lease's inputs into batches, computes them, and publishes their results.
type leaseBatches interface {
	// await waits for the first payload of the next batch. It reports false if there are no more payloads.
	await() bool

	// pack fills the next batch. bound receives the pipeline's maximum number of payloads and returns the maximum for
	// this batch. The returned batch is nil if the lease ends.
	pack(ctx context.Context, bound func(limit int) int) (*leaseBatch, error)

	// submit submits b to the device. Once b has left the device, its group is completed. discard frees a batch that
	// wasn't submitted.
	submit(b *leaseBatch)
	discard(b *leaseBatch)

	// Every batch on the device holds a lock. share takes a shared lock. isolate takes an exclusive lock, so its batch
	// runs alone. leave releases the lock.
	share() (leave func())
	isolate() (leave func())

	// probe computes payloads with known results on the device, and returns an error if the device fails.
	probe(ctx context.Context) error

	// rescue computes the payloads of a failed batch again. Afterwards g has the results of all payloads except the
	// failing ones. publish stores the results of a batch, and records the stored inputs in the lease's
	// acknowledgements.
	rescue(ctx context.Context, g *inflight.Batch) error
	publish(ctx context.Context, g *inflight.Batch) error

	// report passes a batch to the observers. recycle frees the batch.
	report(g *inflight.Batch)
	recycle(g *inflight.Batch)

	now() time.Duration                                  // clock of the stage timestamps
	largest() int                                        // pipeline's maximum number of payloads per batch
	deviceFailed() error                                 // cause of the device's loss, or nil
	deviceFault() (f inflight.OperatorFault, known bool) // operator fault that caused the loss of the device
	stopPacking()                                        // releases the deliveries that are in no batch
	stopPublishing()
}

// leaseBatch is a batch that is packed but not submitted.
type leaseBatch struct {
	group *inflight.Batch
	batch *streams.Batch
	why   streams.CloseReason
}

// sharedDevice is the state that the leases of all partitions on one device share.
type sharedDevice struct {
	pipe      *streams.Pipeline
	gate      sync.RWMutex // read-locked by batches on the device, write-locked by a payload that must run alone
	submitted atomic.Int32 // number of batches that are submitted and not settled
}

// pipelineBatches implements leaseBatches with a real pipeline and the worker's result writer.
type pipelineBatches struct {
	lease   *leaseState
	o       *Options
	device  *sharedDevice
	pipe    *streams.Pipeline
	log     *slog.Logger
	batcher *inflight.Batcher // used only by the goroutine that fills batches
	buffers results.Buffers   // used only by the goroutine that settles batches
	apart   quarantine.Device // runs separate batches, beside batches of other partitions

	isolated atomic.Bool // whether the next batch runs alone on the device
}

func newPipelineBatches(l *leaseState, o *Options, device *sharedDevice) *pipelineBatches {
	window := inflight.NewOrderedWindow(&device.submitted)
	b := &pipelineBatches{
		lease: l, o: o, device: device, pipe: device.pipe, log: l.log,
		batcher: o.Pool.NewBatcher(device.pipe, l.out, o.Linger, window, func(d inflight.Delivery) { o.Pool.Release(&d) }),
	}
	b.apart = &quarantine.Pipeline{Pipe: b.pipe, Pool: o.Pool, Gate: device.gate.RLocker(), Observe: b.report}
	return b
}

func (b *pipelineBatches) await() bool { return b.batcher.Await() }

func (b *pipelineBatches) pack(ctx context.Context, bound func(limit int) int) (*leaseBatch, error) {
	g, err := b.batcher.Reserve(ctx)
	if err != nil {
		return nil, nil // the lease ends, and the server redelivers the inputs that were not submitted
	}
	b.batcher.MaxMessages = bound(b.largest())
	batch, why, err := b.batcher.Next(g)
	if batch == nil {
		return nil, err
	}
	return &leaseBatch{group: g, batch: batch, why: why}, nil
}

func (b *pipelineBatches) submit(packed *leaseBatch) {
	g, batch := packed.group, packed.batch
	if b.isolated.Load() {
		batch.StepThrough(nil)
	}
	if err := b.o.Pool.Submit(batch, g, b.batcher.Window, packed.why); err != nil {
		record := *batch.ReadRecord()
		batch.Release()
		g.Complete(record, err) // the settler searches for the failing payload
	}
}

func (b *pipelineBatches) discard(packed *leaseBatch) {
	packed.batch.Release()
	b.o.Pool.Recycle(packed.group)
}

func (b *pipelineBatches) share() (leave func()) {
	b.device.gate.RLock()
	return b.device.gate.RUnlock
}

func (b *pipelineBatches) isolate() (leave func()) {
	b.device.gate.Lock()
	b.isolated.Store(true)
	return func() {
		b.isolated.Store(false)
		b.device.gate.Unlock()
	}
}

func (b *pipelineBatches) probe(ctx context.Context) error {
	return b.apart.Probe(ctx)
}

func (b *pipelineBatches) report(g *inflight.Batch) {
	g.Report(b.o.Batches, b.o.Records)
}

func (b *pipelineBatches) recycle(g *inflight.Batch) {
	b.buffers.Tidy(b.o.Pool)
	b.o.Pool.Recycle(g)
}

func (b *pipelineBatches) now() time.Duration  { return b.pipe.Now() }
func (b *pipelineBatches) largest() int        { return b.pipe.BatchPayloads() }
func (b *pipelineBatches) deviceFailed() error { return b.pipe.Err() }
func (b *pipelineBatches) deviceFault() (f inflight.OperatorFault, known bool) {
	return inflight.FaultOf(b.pipe)
}
func (b *pipelineBatches) stopPacking()    { b.batcher.Drop() }
func (b *pipelineBatches) stopPublishing() { b.buffers.Free(b.o.Pool) }

// publish stores the results of a batch. If a result can never be stored, its payload becomes a dead letter.
func (b *pipelineBatches) publish(drainCtx context.Context, g *inflight.Batch) error {
	if c, ok := b.lease.commits.(*results.Commits); ok {
		return c.Store(drainCtx, g, &b.buffers, b.lease.acks)
	}
	return b.o.Results.Store(drainCtx, g, &b.buffers, b.lease.acks)
}

// submitter submits a lease's inputs to the device.
type submitter struct {
	*leaseState
	batches leaseBatches
}

// run packs inputs into batches and submits them, until there are no more inputs. While precaution.bound limits the
// batches, run submits one batch at a time and waits for its acknowledgement.
func (s *submitter) run(ctx context.Context) error {
	defer s.batches.stopPacking()
	for s.batches.await() {
		if ctx.Err() != nil {
			return nil
		}
		if err := s.probeBeforeAlone(ctx); err != nil {
			return err
		}
		cautious := false
		b, err := s.batches.pack(ctx, func(limit int) (bound int) {
			cautious, bound = s.caution.bound(limit)
			return bound
		})
		if b == nil {
			return err
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
	b.group.OnLeave = s.batches.share()
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
	return s.caution.relax(ctx, n, s.batches.largest())
}

// probeBeforeAlone probes the device before a payload runs alone. Otherwise the death of the worker would prove nothing
// about the payload. The probe runs before the submitter reserves a batch, so that probes don't wait for each other's
// batches.
func (s *submitter) probeBeforeAlone(ctx context.Context) error {
	if due, _ := s.caution.bound(1); !due || !s.caution.isAlone() {
		return nil
	}
	return s.batches.probe(ctx)
}

// computeAlone computes a payload with nothing else on the device. If the worker dies during the computation, the payload
// is the cause. An annotation names the payload while it is on the device.
func (s *submitter) computeAlone(ctx context.Context, b *leaseBatch) error {
	defer s.batches.isolate()()
	g := b.group
	g.OnLeave = func() {}
	if err := s.notes.annotate(ctx, map[string]string{annotationAlone: s.caution.trial(g)}); err != nil {
		s.batches.discard(b)
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
	if failed && s.batches.deviceFailed() != nil {
		return nil // lease.end handles the annotation
	}
	return s.notes.annotate(ctx, map[string]string{annotationAlone: ""})
}

// submit submits a batch to the device, and passes its group to the settler, which then owns it.
func (s *submitter) submit(b *leaseBatch) {
	g := b.group
	g.Completed = make(chan struct{})
	s.batches.submit(b)
	s.order <- g // the channel has space for every group
}

// settler stores the results of a lease's batches and acknowledges its inputs.
type settler struct {
	*leaseState
	batches leaseBatches
}

// run publishes the results of the batches in stream order, and acknowledges each batch with one message. It returns
// when order is closed. After a failure, it publishes no further batches, and the server redelivers their inputs to the
// next lease.
func (s *settler) run(drainCtx context.Context) {
	defer s.batches.stopPublishing()
	broken := false
	for g := range s.order {
		select {
		case <-g.Completed:
		case <-drainCtx.Done():
			broken = true // the batch is still on the device and uses g
			continue
		}
		if !broken {
			if err := s.settle(drainCtx, g); err != nil {
				s.fail(err)
				broken = true
			}
		}
		over := g.Finished
		s.batches.recycle(g)
		if over != nil {
			close(over)
		}
	}
}

func (s *settler) settle(drainCtx context.Context, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := s.batches.rescue(drainCtx, g); err != nil {
			return err
		}
	}
	start := s.batches.now()
	if err := s.batches.publish(drainCtx, g); err != nil {
		return err
	}
	published := s.batches.now()
	err := s.acks.acknowledge(drainCtx, g)
	g.Record.Publish = streams.Span{Start: start, End: published}
	g.Record.Settle = streams.Span{Start: published, End: s.batches.now()}
	if !failed { // after a failure, the batch has already been reported
		s.batches.report(g)
	}
	return err
}
