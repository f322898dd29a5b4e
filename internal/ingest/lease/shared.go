package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/members"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
	"millrace/internal/streams"
)

// Shared runs shared delivery in one worker. Run may be called only once.
type Shared struct {
	o         Options
	server    leaseServer
	ends      *acknowledger
	admission *admission
	bisector  *quarantine.Bisector
	window    *inflight.Window
	buffers   *inflight.FreeList[*results.Buffers]
	occupied  atomic.Bool // see source
	unread    unread
}

// New returns a Shared for the settings s.
func newShared(o Options) *Shared {
	slots := 0
	for _, p := range o.Pipes {
		slots += p.Slots()
	}
	ends, server := newAcknowledger(o), newConsumerServer(&o, o.Conns[0], o.Consumer, o.Log)
	server.request = server.sharedRequest()
	m := &Shared{
		o: o, server: server, ends: ends, window: inflight.NewWindow(len(o.Conns.ForResults(false))),
		buffers: inflight.NewFreeList(inflight.BatchesPerSlot*slots, func() *results.Buffers { return &results.Buffers{} }),
		admission: &admission{
			ends: ends, maxBytes: inflight.SmallestBatchBytes(o.Pipes), limit: o.Limit, last: o.Consumer.CachedInfo().Config.MaxDeliver,
			levels: quarantine.Levels{Full: fullBatch(o.Pipes), Limit: o.Limit},
		},
	}
	m.bisector = quarantine.NewBisector(m.isolation(), slots)
	return m
}

// fullBatch returns the minimum number of payloads in a full batch over all pipelines.
func fullBatch(pipes []*streams.Pipeline) int {
	full := pipes[0].BatchPayloads()
	for _, p := range pipes {
		full = min(full, p.BatchPayloads())
	}
	return full
}

func (m *Shared) isolation() quarantine.Isolation {
	return quarantine.Isolation{
		Pool: m.o.Pool, Judge: m.o.Judge, Ends: m.ends, Levels: m.admission.levels, Limit: m.o.Limit, Log: m.o.Log,
		Device: func(p *streams.Pipeline) quarantine.Device {
			return &quarantine.Pipeline{Pipe: p, Pool: m.o.Pool, Observe: m.observe}
		},
		Attempts: &quarantine.Attempts{Consumer: m.server, Log: m.o.Log},
	}
}

// Run pulls until intake ends. Then it finishes the received deliveries, until drainCtx ends. On a failure, it passes
// the error to stop, which must end intake.
func (m *Shared) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	settled := make(chan struct{})
	var settlers, intakers sync.WaitGroup
	m.startCollectors(&settlers, settled, drainCtx)
	settlers.Go(func() { m.bisector.Run(settled, drainCtx) })
	defer m.startBacklogWatch()()
	m.startIntake(&intakers, intake, drainCtx, stop)

	intakers.Wait()
	m.giveBackUnread()
	m.o.Pool.AwaitIdle(drainCtx)
	close(settled)
	settlers.Wait()
	m.ends.publishing.Wait()
	m.o.Pool.Abandon(func(b *inflight.Batch) { m.ends.giveBackAll(b, context.Canceled) })
	m.noteFaults(drainCtx)
}

// noteFaults writes the operators that have lost a device to the consumer's metadata.
func (m *Shared) noteFaults(ctx context.Context) {
	for _, pipe := range m.o.Pipes {
		if f, ok := inflight.FaultOf(pipe); ok {
			m.isolation().Attempts.NoteFault(context.WithoutCancel(ctx), f)
		}
	}
}

// startCollectors starts one collector for each batch that a pipeline can have in flight. With fewer collectors, a completed batch
// could keep its buffers while other results wait for the server.
func (m *Shared) startCollectors(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context) {
	for _, p := range m.o.Pipes {
		c := &collector{o: &m.o, pipe: p, buffers: m.buffers, store: func(pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers) {
			m.store(drainCtx, pipe, g, s)
		}}
		for range inflight.BatchesPerSlot * p.Slots() {
			wg.Go(func() { c.run(done) })
		}
	}
}

// store settles a completed batch, or passes a failed one to the bisector.
func (m *Shared) store(drainCtx context.Context, pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers) {
	if g.Err != nil {
		m.observe(g)
		m.bisector.Refused(pipe, g, g.Err)
		return
	}
	m.ends.settle(drainCtx, pipe, g, s)
	m.o.Pool.Recycle(g)
}

// observe reports a batch that was computed.
func (m *Shared) observe(g *inflight.Batch) { g.Report(m.o.Batches, m.o.Records) }

// startBacklogWatch starts watchBacklog. stop ends it and waits for its end.
func (m *Shared) startBacklogWatch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.watchBacklog(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// startIntake starts the source and the submitters of each pipeline. If one of them fails, it calls stop.
func (m *Shared) startIntake(wg *sync.WaitGroup, intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	src := m.newSource(drainCtx)
	wg.Go(func() {
		if err := src.run(intake); err != nil {
			stop(err)
		}
	})
	for _, p := range m.o.Pipes {
		s := &anySubmitter{pool: m.o.Pool, bisector: m.bisector, batcher: m.o.Pool.NewBatcher(p, src.out, m.o.Linger, m.window, m.unread.add)}
		for range inflight.Batchers(p) {
			wg.Go(func() {
				if err := s.run(drainCtx); err != nil {
					stop(err)
				}
				s.batcher.Leave()
			})
		}
		wg.Go(func() {
			select {
			case <-p.Over():
				stop(p.Err())
			case <-intake.Done():
			}
		})
	}
}

func (m *Shared) newSource(drainCtx context.Context) *source {
	pool := m.o.Pool
	src := &source{
		server: m.server, out: inflight.NewQueue(inflight.QueueMax), occupied: &m.occupied, ledger: m.ends.ledger, drainCtx: drainCtx,
		log: m.o.Log, observer: m.o.Observer,
		unread: m.unread.add, hold: pool.Hold, force: pool.Force, admit: func(d *inflight.Delivery) bool { return m.admission.admit(drainCtx, d) },
	}
	ackWait := m.o.Consumer.CachedInfo().Config.AckWait
	src.isolated = quarantine.NewController(drainCtx, src, m.o.Pipes, m.admission.maxBytes, ackWait, m.isolation())
	return src
}

// giveBackUnread gives back the unread deliveries. The server redelivers them at once.
func (m *Shared) giveBackUnread() {
	for _, d := range m.unread.takeAll() {
		m.ends.nak(&d, 0)
		m.o.Pool.Release(&d)
	}
}

// InFlight returns the number of unsettled deliveries.
func (m *Shared) InFlight() int { return m.ends.ledger.size() }

// Owned implements Mode.
func (m *Shared) Owned() int { return 0 }

// Shares implements Mode.
func (m *Shared) Shares() []members.Share { return nil }

// anySubmitter fills batches of one pipeline and submits them. Several goroutines may run it.
type anySubmitter struct {
	pool     *inflight.Pool
	batcher  *inflight.Batcher
	bisector *quarantine.Bisector
}

// run fills and submits batches until there are no more deliveries, drainCtx is done, or the pipeline ends. It returns
// an error only if the pipeline has ended.
func (s *anySubmitter) run(drainCtx context.Context) error {
	for {
		g, err := s.batcher.Reserve(drainCtx)
		switch {
		case err == nil:
		case drainCtx.Err() != nil:
			return nil
		default:
			return err
		}
		b, why, err := s.batcher.Next(g)
		if b == nil {
			return err
		}
		if err := s.submit(b, g, why); err != nil {
			return err
		}
	}
}

// submit submits a filled batch. If the device refuses the batch, submit passes it to the bisector. It returns an error
// only if the pipeline has ended.
func (s *anySubmitter) submit(b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	err := s.pool.Submit(b, g, s.batcher.Window, why)
	if err == nil {
		return nil
	}
	b.Release()
	s.bisector.Refused(s.batcher.Pipe, g, err)
	if streams.Ended(err) {
		return err
	}
	return nil
}

func unacknowledged(info *jetstream.ConsumerInfo) uint64 { return uint64(max(info.NumAckPending, 0)) }

// watchBacklog queries the consumer every stall.Interval until ctx is done. It passes the backlog to the observer, and the
// consumer's state to the stall detector.
func (m *Shared) watchBacklog(ctx context.Context) {
	for {
		asked, done := context.WithTimeout(ctx, stall.Interval)
		info, err := m.server.Info(asked)
		done()
		if err == nil {
			m.o.Observer.Pending(info.NumPending)
			m.o.Observer.Unacknowledged(unacknowledged(info))
			m.o.Stalls.Saw(0, info, m.occupied.Load(), time.Now())
		} else {
			m.o.Stalls.MarkUnknown(0, time.Now())
		}
		if !retry.Sleep(ctx, stall.Interval) {
			return
		}
	}
}
