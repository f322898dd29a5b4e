package shared

import (
	"context"
	"sync"
	"sync/atomic"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// Mode runs shared delivery in one worker. Run may be called only once.
type Mode struct {
	o         Options
	ends      *acknowledger
	admission *admission
	bisector  *quarantine.Bisector
	window    *inflight.Window
	buffers   *inflight.FreeList[*results.Buffers]
	occupied  atomic.Bool // see source
	unread    unread
}

// New returns a Mode for the settings s.
func New(o Options) *Mode {
	slots := 0
	for _, p := range o.Pipes {
		slots += p.Slots()
	}
	ends := newAcknowledger(o)
	m := &Mode{
		o: o, ends: ends, window: inflight.NewWindow(len(o.Conns.ForResults(false))),
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

func (m *Mode) isolation() quarantine.Isolation {
	return quarantine.Isolation{
		Pool: m.o.Pool, Judge: m.o.Judge, Ends: m.ends, Levels: m.admission.levels, Limit: m.o.Limit, Log: m.o.Log,
		Attempts: &quarantine.Attempts{JS: m.o.JS, Consumer: m.o.Consumer, Stream: m.o.Consumer.CachedInfo().Stream, Log: m.o.Log},
	}
}

// Run pulls until intake ends. Then it finishes the received deliveries, until drainCtx ends. On a failure, it passes
// the error to stop, which must end intake.
func (m *Mode) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	settled := make(chan struct{})
	var settlers, intakers sync.WaitGroup
	m.startSettlers(&settlers, settled, drainCtx)
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
func (m *Mode) noteFaults(ctx context.Context) {
	for _, pipe := range m.o.Pipes {
		if f, ok := inflight.FaultOf(pipe); ok {
			m.isolation().Attempts.NoteFault(context.WithoutCancel(ctx), f)
		}
	}
}

// startSettlers starts one settler for each batch that a pipeline can have in flight. With fewer settlers, a completed
// batch could keep its buffers while other results wait for the server.
func (m *Mode) startSettlers(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context) {
	for _, p := range m.o.Pipes {
		for range inflight.BatchesPerSlot * p.Slots() {
			s := &settler{pipe: p, pool: m.o.Pool, ends: m.ends, bisector: m.bisector, free: m.buffers}
			wg.Go(func() { s.run(done, drainCtx) })
		}
	}
}

// startBacklogWatch starts watchBacklog. stop ends it and waits for its end.
func (m *Mode) startBacklogWatch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { watchBacklog(ctx, m.o, &m.occupied) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// startIntake starts the source and the submitters of each pipeline. If one of them fails, it calls stop.
func (m *Mode) startIntake(wg *sync.WaitGroup, intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	src := m.newSource(drainCtx)
	wg.Go(func() {
		if err := src.run(intake); err != nil {
			stop(err)
		}
	})
	for _, p := range m.o.Pipes {
		s := &submitter{pool: m.o.Pool, bisector: m.bisector, batcher: m.o.Pool.NewBatcher(p, src.out, m.o.Linger, m.window, m.unread.add)}
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

func (m *Mode) newSource(drainCtx context.Context) *source {
	nc, pool := m.o.Conns[0], m.o.Pool
	src := &source{
		nc: nc, conns: m.o.Conns, api: jsapi.Of(m.o.JS), consumer: m.o.Consumer, size: m.o.Size, limit: m.o.Size.Limit(nc), out: inflight.NewQueue(inflight.QueueMax),
		occupied: &m.occupied, ledger: m.ends.ledger, drainCtx: drainCtx, log: m.o.Log, observer: m.o.Observer,
		unread: m.unread.add, hold: pool.Hold, force: pool.Force, admit: func(d *inflight.Delivery) bool { return m.admission.admit(drainCtx, d) },
	}
	ackWait := m.o.Consumer.CachedInfo().Config.AckWait
	src.isolated = quarantine.NewController(drainCtx, src, m.o.Pipes, m.admission.maxBytes, ackWait, m.isolation())
	return src
}

// giveBackUnread gives back the unread deliveries. The server redelivers them at once.
func (m *Mode) giveBackUnread() {
	for _, d := range m.unread.takeAll() {
		m.ends.nak(&d, 0)
		m.o.Pool.Release(&d)
	}
}

// InFlight returns the number of unsettled deliveries.
func (m *Mode) InFlight() int { return m.ends.ledger.size() }

// Owned returns 0, because with shared delivery no worker owns a partition.
func (m *Mode) Owned() int { return 0 }
