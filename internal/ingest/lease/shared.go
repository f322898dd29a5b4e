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
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Shared runs shared delivery in one worker. Run may be called only once.
type Shared struct {
	o         Options
	server    leaseServer
	devices   sharedDevices
	ends      *acknowledger
	admission *admission
	bisector  *quarantine.Bisector
	window    *inflight.Window
	buffers   *inflight.FreeList[*results.Buffers]
	unread    unread
	// occupied is set while the source doesn't pull, because a delivery waits for space or is tried. See package stall.
	occupied atomic.Bool
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
	ends := newAcknowledger(o, store)
	m := &Shared{
		o: o, server: server, ends: ends, ackWait: c.AckWait, window: inflight.NewWindow(len(o.Conns.ForResults(false))),
		buffers: inflight.NewFreeList(o.Pool.Size(), func() *results.Buffers { return &results.Buffers{} }),
		admission: &admission{
			ends: ends, judge: o.Judge, maxBytes: o.Pool.Split.MaxRecord, limit: o.Limit, last: c.MaxDeliver,
			levels: quarantine.Levels{Full: fullBatch(o.Pipes), Limit: o.Limit},
		},
	}
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
		Pool: m.o.Pool, Judge: m.o.Judge, Ends: m.ends, Levels: m.admission.levels, Limit: m.o.Limit, Log: m.o.Log,
		Device:   func(p *streams.Pipeline) quarantine.Device { return m.devices.apart(p) },
		Attempts: &quarantine.Attempts{Consumer: m.server, Log: m.o.Log},
	}
}

// Run pulls until intake ends. Then it finishes the received deliveries, until drainCtx ends. On a failure, it passes
// the error to stop, which must end intake.
func (m *Shared) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	settled := make(chan struct{})
	var settlers, intakers sync.WaitGroup
	m.devices.collect(&settlers, settled, drainCtx, stop)
	settlers.Go(func() { m.bisector.Run(settled, drainCtx) })
	defer m.startBacklogWatch()()
	src := m.newSource(drainCtx)
	intakers.Go(func() {
		if err := src.run(intake); err != nil {
			stop(err)
		}
	})
	m.devices.submit(&intakers, drainCtx, src.out, stop)

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

// States implements Mode.
func (m *Shared) States() StateFigures { return StateFigures{} }

// sharedDevices computes the deliveries of a Shared. sharedPipelines implements it, and the model test simulates it.
type sharedDevices interface {
	// collect starts goroutines that pass completed batches to Shared.store until done is closed. When a device is lost, it calls stop.
	collect(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context, stop context.CancelCauseFunc)

	// submit starts goroutines that pack the deliveries from in into batches, until in is closed or a device is lost. They pass the
	// remaining deliveries to Shared.unread.
	submit(wg *sync.WaitGroup, drainCtx context.Context, in *inflight.Queue, stop context.CancelCauseFunc)

	// apart returns the device of a pipeline for separate batches.
	apart(p *streams.Pipeline) quarantine.Device
}

// sharedPipelines implements sharedDevices with real pipelines.
type sharedPipelines struct{ *Shared }

// collect starts one collector for each batch that a pipeline can have in flight. With fewer collectors, a completed batch could
// keep its buffers while other results wait for the server.
func (m sharedPipelines) collect(wg *sync.WaitGroup, done <-chan struct{}, drainCtx context.Context, stop context.CancelCauseFunc) {
	for _, p := range m.o.Pipes {
		c := &collector{o: &m.o, pipe: p, buffers: m.buffers, store: func(pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers) {
			m.store(drainCtx, pipe, g, s)
		}}
		for range memory.BatchesPerSlot * p.Slots() {
			wg.Go(func() { c.run(done) })
		}
		wg.Go(func() {
			select {
			case <-p.Over():
				stop(p.Err())
			case <-done:
			}
		})
	}
}

func (m sharedPipelines) submit(wg *sync.WaitGroup, drainCtx context.Context, in *inflight.Queue, stop context.CancelCauseFunc) {
	for _, p := range m.o.Pipes {
		batcher := m.o.Pool.NewBatcher(p, in, m.o.Linger, m.window, m.unread.add)
		for range inflight.Batchers(p) {
			wg.Go(func() {
				for {
					if more, err := m.submitNext(drainCtx, batcher); err != nil {
						stop(err)
						break
					} else if !more {
						break
					}
				}
				batcher.Leave()
			})
		}
	}
}

// submitNext packs and submits a batch. more is false if there are no more deliveries or drainCtx is done. If the device refuses the
// batch, submitNext passes it to the bisector. It returns an error only if the pipeline has ended.
func (m sharedPipelines) submitNext(drainCtx context.Context, batcher *inflight.Batcher) (more bool, err error) {
	g, err := batcher.Reserve(drainCtx)
	if err != nil {
		if drainCtx.Err() != nil {
			err = nil
		}
		return false, err
	}
	b, why, err := batcher.Next(g)
	if b == nil {
		return false, err
	}
	if err := m.o.Pool.Submit(b, g, batcher.Window, why); err != nil {
		b.Release()
		m.bisector.Refused(batcher.Pipe, g, err)
		if streams.Ended(err) {
			return false, err
		}
	}
	return true, nil
}

func (m sharedPipelines) apart(p *streams.Pipeline) quarantine.Device {
	return &quarantine.Pipeline{Pipe: p, Pool: m.o.Pool, Observe: m.observe}
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
