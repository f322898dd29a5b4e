package lease

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/members"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/streams"
)

// Shared runs shared delivery in one worker. Run may be called only once.
type Shared struct {
	inputs
	devices  sharedDevices
	out      *inflight.Queue // deliveries from the source to the packers
	ends     *each           // the inputs' acknowledger
	levels   quarantine.Levels
	bisector *quarantine.Bisector
	watch    *watch
	ackWait  time.Duration   // the consumer's AckWait
	drainCtx context.Context // argument of Run
	storing  sync.WaitGroup  // counts the batches that have left the device and are not stored
}

// newShared returns a Shared with the settings o.
func newShared(o Options) *Shared {
	server := newConsumerServer(&o, o.Conns[0], o.Consumer, o.Log)
	server.request = server.sharedRequest()
	return newSharedOn(o, server, o.Results, o.Consumer.CachedInfo().Config)
}

// newSharedOn is like newShared with the given server and result store. c has the consumer's settings.
func newSharedOn(o Options, server leaseServer, store resultStore, c jetstream.ConsumerConfig) *Shared {
	slots := 0
	for _, p := range o.Pipes {
		slots += p.Slots()
	}
	m := &Shared{
		inputs: inputs{o: &o, server: server, store: store, log: o.Log}, levels: quarantine.Levels{Full: fullBatch(o.Pipes), Limit: o.Limit},
		ackWait: c.AckWait,
	}
	m.out = o.Pool.NewQueue(m, inflight.QueueMax, inflight.NewWindow(len(o.Conns.ForResults(false))))
	m.watch = newWatch(&o, func(ctx context.Context, _ int) (*jetstream.ConsumerInfo, error) { return server.Info(ctx) })
	m.out.Share = o.Share
	m.busy = &m.watch.busy[0]
	m.ends = newEach(&m.inputs)
	m.ack, m.blame = m.ends, &countedDeliveries{ledger: m.ends.ledger, judge: o.Judge, levels: m.levels, limit: o.Limit, last: c.MaxDeliver}
	m.devices = sharedPipelines{o.Devices}
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
		Pool: m.o.Pool, Queue: m.out, Judge: m.o.Judge, Ends: m.ends, Levels: m.levels, Limit: m.o.Limit, Log: m.o.Log,
		Device:   func(p *streams.Pipeline) quarantine.Device { return m.devices.of(p) },
		Attempts: &quarantine.Attempts{Consumer: m.server, Log: m.o.Log},
	}
}

// Run pulls until intake ends. Then it finishes the received deliveries, until drainCtx ends. On a failure, it passes
// the error to stop, which must end intake.
func (m *Shared) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	m.drainCtx = drainCtx
	var helpers sync.WaitGroup
	completed, finish := context.WithCancel(context.WithoutCancel(intake))
	helpers.Go(func() { m.bisector.Run(completed.Done(), drainCtx) })
	helpers.Go(func() { m.watch.run(completed) })
	detach := m.devices.serve(m.out)
	if err := m.newSource(drainCtx).run(intake); err != nil {
		stop(err)
	}
	m.out.AwaitIdle(drainCtx)
	detach()
	for d, ok := m.out.Get(); ok; d, ok = m.out.Get() {
		m.ends.leave(d)
	}
	m.ends.giveBackUnread()
	finish()
	helpers.Wait()
	m.ends.publishing.Wait()
	m.noteFaults(drainCtx)
}

// Abandon implements Mode.
func (m *Shared) Abandon() {
	m.storing.Wait()
	m.o.Pool.Abandon(m.out, func(b *inflight.Batch) { m.ends.giveBackAll(b, context.Canceled) })
}

// noteFaults writes the operators that have lost a device to the consumer's metadata.
func (m *Shared) noteFaults(ctx context.Context) {
	for _, pipe := range m.o.Pipes {
		if f, ok := inflight.FaultOf(pipe); ok {
			m.isolation().Attempts.NoteFault(context.WithoutCancel(ctx), f)
		}
	}
}

// Packed implements inflight.Owner. Each batch is stored by a goroutine of its own, so a batch that can't be stored holds up no other.
func (m *Shared) Packed(g *inflight.Batch) {
	g.OnComplete = func() { m.storing.Go(func() { m.storeBatch(g) }) }
}

// Unread implements inflight.Owner.
func (m *Shared) Unread(d inflight.Delivery) { m.ends.leave(d) }

// storeBatch stores the results of a completed batch, and acknowledges its inputs. It passes a failed batch to the bisector. If the drain
// ends first, it gives back the inputs without a stored result.
func (m *Shared) storeBatch(g *inflight.Batch) {
	if g.Err != nil {
		m.o.Devices.report(g)
		m.bisector.Refused(g.Pipe, g, g.Err)
		return
	}
	s := m.o.Devices.take()
	defer m.o.Devices.put(s)
	if m.finish(m.drainCtx, g, s) != nil {
		m.ends.giveBackAll(g, context.Canceled)
	}
	m.o.Devices.report(g)
	m.o.Pool.Recycle(g)
}

// InFlight returns the number of unsettled deliveries.
func (m *Shared) InFlight() int { return m.ends.ledger.size() }

// Owned implements Mode.
func (m *Shared) Owned() int { return 0 }

// Shares implements Mode.
func (m *Shared) Shares() []members.Share { return nil }

// States implements Mode.
func (m *Shared) States() StateFigures { return StateFigures{} }

// sharedDevices has the devices of a Shared. sharedPipelines implements it, and the model test simulates it.
type sharedDevices interface {
	// serve computes the deliveries of a queue, until stop returns.
	serve(q *inflight.Queue) (stop func())

	of(p *streams.Pipeline) quarantine.Device
}

// sharedPipelines implements sharedDevices with real pipelines.
type sharedPipelines struct{ *Devices }

func (d sharedPipelines) serve(q *inflight.Queue) (stop func()) {
	d.all[0].feed.Attach(q) // all devices share it
	return q.Detach
}

func (d sharedPipelines) of(p *streams.Pipeline) quarantine.Device {
	for _, s := range d.all {
		if s.pipe == p {
			return newPipelineDevice(s)
		}
	}
	panic("ingest: a worker has no such pipeline")
}
