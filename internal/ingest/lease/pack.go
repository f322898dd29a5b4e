package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// In this file, packers pack the inputs of all leases into batches and submit them. Collectors complete the batches that have left the
// device, in any order.

// DeviceOptions configures Devices. The caller keeps ownership of everything in it.
type DeviceOptions struct {
	Pipes   []*streams.Pipeline
	Pool    *inflight.Pool
	Judge   *quarantine.Judge
	Linger  time.Duration // maximum time that the oldest payload of a batch waits for more payloads
	Spread  bool          // whether each lease has one device, because its results are stored in order; otherwise every device serves all leases
	Batches inflight.BatchObserver
	Records inflight.RecordObserver
}

// Devices computes the inputs of all leases of a worker. A batch may have inputs of many leases.
type Devices struct {
	DeviceOptions
	all     []*sharedDevice
	drained atomic.Pointer[<-chan struct{}]      // done channel of Start's drainCtx; nil before Start
	buffers *inflight.FreeList[*results.Buffers] // for encoding and storing
}

// NewDevices returns Devices that do nothing until Start.
func NewDevices(o DeviceOptions) *Devices {
	d := &Devices{DeviceOptions: o, buffers: inflight.NewFreeList(func() *results.Buffers { return &results.Buffers{} })}
	feed := inflight.NewFeed()
	for _, p := range o.Pipes {
		if o.Spread {
			feed = inflight.NewFeed()
		}
		d.all = append(d.all, &sharedDevice{Devices: d, pipe: p, feed: feed, packer: o.Pool.NewPacker(p, feed, o.Linger)})
	}
	return d
}

// Start starts the goroutines that pack and complete batches. When a device is lost, they call stop. Once drainCtx ends, inputs that are
// not packed are returned to their leases. The returned function ends the goroutines and waits for them.
func (d *Devices) Start(drainCtx context.Context, stop context.CancelCauseFunc) (end func()) {
	over := drainCtx.Done()
	d.drained.Store(&over)
	var running sync.WaitGroup
	life, finish := context.WithCancel(context.WithoutCancel(drainCtx))
	for _, s := range d.all {
		device := newPipelineDevice(s)
		packing, over := context.WithCancel(drainCtx)
		for range inflight.Packers(s.pipe) {
			running.Go(func() {
				if err := packAll(packing, s.packer, device); err != nil {
					stop(err)
				}
				s.packer.Leave(life)
			})
		}
		for range s.pipe.Slots() {
			running.Go(func() { s.collectAll(life.Done()) })
		}
		running.Go(func() {
			defer over()
			select {
			case <-s.pipe.Over():
				stop(s.pipe.Err())
			case <-life.Done():
			}
		})
	}
	return func() { finish(); running.Wait() }
}

// packAll packs and submits batches until ctx is done. It returns an error if the pipeline has ended.
func packAll(ctx context.Context, packer *inflight.Packer, device batchDevice) error {
	for {
		p, err := packer.Next(ctx, device.limit())
		if p == nil {
			return err
		}
		device.submit(p)
	}
}

// report passes the record of a batch that was computed to the observers.
func (d *Devices) report(g *inflight.Batch) { g.Report(d.Batches, d.Records) }

// take returns unused buffers. put frees them again.
func (d *Devices) take() *results.Buffers { return d.buffers.Take() }

func (d *Devices) put(s *results.Buffers) {
	s.Tidy(d.Pool)
	d.buffers.Put(s)
}

// sharedDevice is the state that all leases on one device share.
type sharedDevice struct {
	*Devices
	pipe      *streams.Pipeline
	feed      *inflight.Feed // inputs for the device
	packer    *inflight.Packer
	gate      sync.RWMutex // read-locked by batches on the device, write-locked by a payload that must run alone
	submitted atomic.Int32 // number of groups that are submitted and not recycled, for ordered windows
}

// collectAll completes batches until done is closed.
func (s *sharedDevice) collectAll(done <-chan struct{}) {
	for {
		select {
		case b := <-s.pipe.Completed():
			s.collect(b)
		case <-done:
			return
		}
	}
}

// collect encodes the results of a batch, releases the device buffers, and completes the batch.
func (s *sharedDevice) collect(b *streams.Batch) {
	p := b.Owner.(*inflight.Packed)
	record, err := *b.ReadRecord(), b.Err()
	if err == nil {
		for _, g := range p.Groups {
			s.Judge.CameRight(s.pipe, g)
			g.StartPublish()
			g.Encode(b)
		}
	}
	b.Release()
	p.Complete(record, err)
}

// pipelineDevice implements leaseDevice with a real pipeline.
type pipelineDevice struct {
	quarantine.Pipeline
	shared *sharedDevice
}

func newPipelineDevice(s *sharedDevice) *pipelineDevice {
	return &pipelineDevice{shared: s, Pipeline: quarantine.Pipeline{Pipe: s.pipe, Pool: s.Pool, Gate: &s.gate, Observe: s.report}}
}

func (d *pipelineDevice) limit() int { return d.Pipe.BatchPayloads() }

func (d *pipelineDevice) serve(q *inflight.Queue) (stop func()) {
	d.shared.feed.Attach(q)
	return q.Detach
}

func (d *pipelineDevice) submit(p *inflight.Packed) {
	if d.Isolated.Load() {
		p.Batch.StepThrough(nil)
	} else {
		d.shared.gate.RLock()
		p.OnLeave = d.shared.gate.RUnlock
	}
	if err := d.Pool.Submit(p); err != nil {
		record := *p.Batch.ReadRecord()
		p.Batch.Release()
		p.Complete(record, err)
	}
}

func (d *pipelineDevice) lost() error { return d.Pipe.Err() }

func (d *pipelineDevice) fault() (f inflight.OperatorFault, known bool) {
	return inflight.FaultOf(d.Pipe)
}

// submitter passes a lease's inputs to the device. While precaution.bound limits the batches, it packs and submits them itself, one at a
// time, without inputs of other leases.
type submitter struct{ *leaseState }

// run passes inputs to the device until ctx ends.
func (s *submitter) run(ctx context.Context) error {
	if err := s.runCautiously(ctx); err != nil || ctx.Err() != nil {
		return err // runCautiously may have dropped an input, so no later one may follow
	}
	defer s.device.serve(s.out)()
	<-ctx.Done()
	return nil
}

// runCautiously submits batches while the lease must be cautious, and waits for the acknowledgement of each.
func (s *submitter) runCautiously(ctx context.Context) (err error) {
	var packer *inflight.Packer
	for packer != nil && packer.Carries() || s.out.Await(ctx) {
		cautious, bound := s.caution.bound(s.pipe.BatchPayloads())
		switch {
		case ctx.Err() != nil:
			return nil
		case packer == nil && !cautious:
			return nil
		case packer == nil:
			feed := inflight.NewFeed()
			packer = s.o.Pool.NewPacker(s.pipe, feed, s.o.Linger)
			feed.Attach(s.out)
			defer s.out.Detach()
			defer packer.Drop()
		case !cautious && !packer.IsMidFrame():
			packer.Return()
			return nil
		}
		if err := s.submitCautiously(ctx, packer, bound); err != nil {
			return err
		}
	}
	return nil
}

// submitCautiously packs and submits a batch that may kill the worker, and waits until it is acknowledged.
func (s *submitter) submitCautiously(ctx context.Context, packer *inflight.Packer, bound int) error {
	alone := s.caution.isAlone()
	if alone {
		// Otherwise the death of the worker would prove nothing about the payload. The probe runs before Next reserves a batch, so that
		// probes don't wait for each other's batches.
		if err := s.device.Probe(ctx); err != nil {
			return err
		}
	}
	p, err := packer.Next(ctx, min(bound, s.device.limit()))
	if p == nil {
		return err // if there is none, the server redelivers the inputs that were not submitted
	}
	g := p.Groups[0]
	n, last := len(g.Items), uint64(0) // n is 0 if the batch's only frame ends in a later batch
	if n > 0 {
		last = g.Items[n-1].Sequence
	}
	over := make(chan struct{})
	g.Finished = over
	if !alone {
		s.device.submit(p)
	} else if err := s.computeAlone(ctx, p); err != nil {
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
func (s *submitter) computeAlone(ctx context.Context, p *inflight.Packed) error {
	defer s.device.Isolate()()
	g := p.Groups[0]
	if err := s.notes.annotate(ctx, map[string]string{annotationAlone: s.caution.trial(g)}); err != nil {
		p.Batch.Release()
		p.Complete(streams.Record{}, errWithdrawn)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	s.device.submit(p)
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

// errWithdrawn is the error of a batch that is not submitted, because the lease fails.
var errWithdrawn = errors.New("the batch was not submitted")

// Packed implements inflight.Owner. It passes the group to the storer, which then owns it.
func (l *leaseState) Packed(g *inflight.Batch) {
	g.Completed = make(chan struct{})
	l.order.push(g)
}

// Unread implements inflight.Owner.
func (l *leaseState) Unread(d inflight.Delivery) { l.ack.leave(d) }

// order passes the groups of a lease to its storer, in order. It has no bound of its own, because a packer must not wait for one lease. The
// queue bounds the groups, except for those of a single frame.
type order struct {
	mu     sync.Mutex
	more   sync.Cond
	groups []*inflight.Batch
	closed bool
}

func newOrder() *order {
	o := &order{}
	o.more.L = &o.mu
	return o
}

func (o *order) push(g *inflight.Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.groups = append(o.groups, g)
	o.more.Signal()
}

// close makes next return false after the last group.
func (o *order) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Signal()
}

// next waits for a group. Only one goroutine may call it.
func (o *order) next() (g *inflight.Batch, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.groups) == 0 && !o.closed {
		o.more.Wait()
	}
	if len(o.groups) == 0 {
		return nil, false
	}
	g = o.groups[0]
	o.groups = o.groups[1:]
	return g, true
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
	for g, ok := s.order.next(); ok; g, ok = s.order.next() {
		select {
		case <-g.Completed:
		case <-s.abandoned(drainCtx):
			broken = true // the batch is still on the device and uses g
			continue
		}
		broken = broken || errors.Is(g.Err, errWithdrawn)
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

// abandoned returns a channel that is closed when nothing waits for the device any more. A lease of a shard that was dropped waits longer
// than its drainCtx, because the device still works.
func (s *storer) abandoned(drainCtx context.Context) <-chan struct{} {
	if over := s.o.Devices.drained.Load(); over != nil {
		return *over
	}
	return drainCtx.Done()
}

// storeBatch stores the results of a batch, which it computes again first if it failed. Then it acknowledges the batch.
func (s *storer) storeBatch(drainCtx context.Context, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := s.rescue(drainCtx, g); err != nil {
			return err
		}
	}
	err := s.finish(drainCtx, g, &s.buffers)
	if !failed { // after a failure, the batch has already been reported
		s.o.Devices.report(g)
	}
	return err
}
