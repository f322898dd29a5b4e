package lease

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/members"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Shared runs shared delivery in one worker. Run may be called only once.
type Shared struct {
	inputs
	devices  sharedDevices
	ends     *each // the inputs' acknowledger
	levels   quarantine.Levels
	bisector *quarantine.Bisector
	window   *inflight.Window
	buffers  *inflight.FreeList[*results.Buffers]
	watch    *watch
	ackWait  time.Duration // the consumer's AckWait
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
		ackWait: c.AckWait, window: inflight.NewWindow(len(o.Conns.ForResults(false))),
		buffers: inflight.NewFreeList(o.Pool.Size(), func() *results.Buffers { return &results.Buffers{} }),
	}
	m.watch = newWatch(&o, func(ctx context.Context, _ int) (*jetstream.ConsumerInfo, error) { return server.Info(ctx) })
	m.busy = &m.watch.busy[0]
	m.ends = newEach(&m.inputs)
	m.ack, m.blame = m.ends, &countedDeliveries{ledger: m.ends.ledger, judge: o.Judge, levels: m.levels, limit: o.Limit, last: c.MaxDeliver}
	m.devices = sharedPipelines{m}
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
		Pool: m.o.Pool, Judge: m.o.Judge, Ends: m.ends, Levels: m.levels, Limit: m.o.Limit, Log: m.o.Log,
		Device:   func(p *streams.Pipeline) quarantine.Device { return m.devices.of(p) },
		Attempts: &quarantine.Attempts{Consumer: m.server, Log: m.o.Log},
	}
}

// Run pulls until intake ends. Then it finishes the received deliveries, until drainCtx ends. On a failure, it passes
// the error to stop, which must end intake.
func (m *Shared) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	var helpers, intakers sync.WaitGroup
	completed, finish := context.WithCancel(context.WithoutCancel(intake))
	m.devices.collect(&helpers, completed.Done(), drainCtx, stop)
	helpers.Go(func() { m.bisector.Run(completed.Done(), drainCtx) })
	helpers.Go(func() { m.watch.run(completed) })
	src := m.newSource(drainCtx)
	intakers.Go(func() {
		if err := src.run(intake); err != nil {
			stop(err)
		}
	})
	for _, p := range m.o.Pipes {
		device, batcher := m.devices.of(p), m.o.Pool.NewBatcher(p, src.out, m.o.Linger, m.window, m.ends.leave)
		for range inflight.Batchers(p) {
			intakers.Go(func() {
				defer batcher.Leave()
				if err := m.submitAll(drainCtx, device, batcher); err != nil {
					stop(err)
				}
			})
		}
	}
	intakers.Wait()
	m.ends.giveBackUnread()
	m.o.Pool.AwaitIdle(drainCtx)
	finish()
	helpers.Wait()
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

// submitAll packs and submits batches, until there are no more deliveries or drainCtx is done. It returns an error only if the pipeline has
// ended. A batch that the device refuses goes to the bisector.
func (m *Shared) submitAll(drainCtx context.Context, device batchDevice, batcher *inflight.Batcher) error {
	for {
		b, err := pack(drainCtx, batcher, device.limit())
		if b == nil {
			return err
		}
		if !device.submit(b) {
			m.storeBatch(drainCtx, batcher.Pipe, b.group, nil, 0)
		}
	}
}

// storeBatch stores the results of a completed batch since start, and acknowledges its inputs. It passes a failed batch to the bisector. If
// drainCtx ends, it gives back the inputs without a stored result.
func (m *Shared) storeBatch(drainCtx context.Context, pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers, start time.Duration) {
	if g.Err != nil {
		m.observe(g)
		m.bisector.Refused(pipe, g, g.Err)
		return
	}
	if m.finish(drainCtx, pipe, g, s, start) != nil {
		m.ends.giveBackAll(g, context.Canceled)
	}
	m.observe(g)
	m.o.Pool.Recycle(g)
}

// observe reports a batch that was computed.
func (m *Shared) observe(g *inflight.Batch) { g.Report(m.o.Batches, m.o.Records) }

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
	// collect starts goroutines that pass completed batches to Shared.storeBatch until done is closed. When a device is lost, it calls stop.
	collect(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context, stop context.CancelCauseFunc)

	of(p *streams.Pipeline) batchDevice
}

// sharedPipelines implements sharedDevices with real pipelines.
type sharedPipelines struct{ *Shared }

// collect starts one collector for each batch that a pipeline can have in flight. With fewer collectors, a completed batch could
// keep its buffers while other results wait for the server.
func (m sharedPipelines) collect(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context, stop context.CancelCauseFunc) {
	for _, p := range m.o.Pipes {
		c := &collector{o: m.o, pipe: p, buffers: m.buffers, store: func(g *inflight.Batch, s *results.Buffers, start time.Duration) {
			m.storeBatch(drainCtx, p, g, s, start)
		}}
		c.start(wg, memory.BatchesPerSlot*p.Slots(), done, stop)
	}
}

func (m sharedPipelines) of(p *streams.Pipeline) batchDevice {
	return &pipelineDevice{Pipeline: quarantine.Pipeline{Pipe: p, Pool: m.o.Pool, Observe: m.observe}}
}
