package lease

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
	"millrace/internal/streams"
)

// modelAckWait is the consumer's AckWait with shared delivery.
const modelAckWait = 20 * time.Second

// share runs the third part of shared delivery.
func (m *leaseModel) share() {
	m.mu.Lock()
	for _, w := range m.workers {
		m.give(w)
	}
	m.mu.Unlock()
	m.until("all inputs are settled", m.server.isSettled)
	m.mu.Lock()
	for _, w := range m.workers {
		m.take(w)
	}
	m.mu.Unlock()
	m.until("all workers end", m.isIdle)
}

// modelShared simulates the server and the device of a Shared.
type modelShared struct {
	leaseServer // nil; shared delivery uses only the methods below
	modelApart
	s        *Shared
	stop     context.CancelCauseFunc
	settlers sync.WaitGroup
}

// holdShared runs shared delivery until ctx is done.
func (w *leaseWorker) holdShared(ctx context.Context) {
	w.newPool() // a pool serves one run
	e := &modelShared{modelApart: modelApart{w: w}}
	e.lose = func(err error) { e.stop(err) }
	e.s = newSharedOn(Options{
		Conns: natsconn.Connections{nil}, Devices: w.devices(), Limit: modelLimit,
		Stalls: stall.NewDetector(1, w.m.log, e), Confirm: w.m.confirms, Log: w.m.log, Observer: e,
	}, e, w.newWriter(nil), jetstream.ConsumerConfig{AckWait: modelAckWait})
	e.s.devices = e
	intake, stop := context.WithCancelCause(ctx)
	e.stop = stop
	w.leases++
	w.m.note("%s begins", w.id)
	e.s.Run(intake, w.drain, stop)
	e.settlers.Wait()
	e.s.Abandon()
	stop(nil)
	w.m.note("%s ends: %v", w.id, context.Cause(intake))
	if w.isGone() || w.drain.Err() != nil {
		return
	}
	if used, batches := w.pool.Memory().Used, w.pool.InFlight(); used != 0 || batches != 0 || e.s.InFlight() != 0 {
		w.m.violate("%s has ended, and %d bytes, %d batches and %d inputs are in flight", w.id, used, batches, e.s.InFlight())
	}
	if cause := context.Cause(intake); w.m.calm && !errors.Is(cause, context.Canceled) {
		w.m.violate("%s ends while nothing is wrong: %v", w.id, cause)
	}
}

func (e *modelShared) Pending(uint64)                       {}
func (e *modelShared) Unacknowledged(uint64)                {}
func (e *modelShared) Redelivered()                         {}
func (e *modelShared) StateReplayed(int)                    {}
func (e *modelShared) StateTrimFailed()                     {}
func (e *modelShared) Restarted()                           {}
func (e *modelShared) OperatorFault(inflight.OperatorFault) {}
func (e *modelShared) Stalled(int)                          {}

func (e *modelShared) Info(ctx context.Context) (info *jetstream.ConsumerInfo, err error) {
	err = e.w.call(ctx, "info", false, func() error {
		s := e.w.m.server
		info = s.info()
		info.AckFloor.Stream = s.nextSequence - 1
		for in := range s.pending {
			info.AckFloor.Stream = min(info.AckFloor.Stream, in-1)
			if s.counts[in] > 1 {
				info.NumRedelivered++
			}
		}
		return nil
	})
	return info, err
}

func (e *modelShared) Annotate(ctx context.Context, _ jetstream.ConsumerConfig, metadata map[string]string) error {
	return e.w.call(ctx, "annotate", false, func() error {
		e.w.m.did("alone")
		e.w.m.note("annotations: %v", metadata)
		e.w.m.server.metadata = maps.Clone(metadata)
		return nil
	})
}

func (e *modelShared) flush(ctx context.Context) error {
	return e.w.call(ctx, "flush", false, func() error { return nil })
}

func (e *modelShared) fetch(n int, wait time.Duration, take func(inflight.Incoming)) (came int, err error) {
	var msgs []*modelMessage
	err = e.w.call(context.Background(), "fetch", false, func() error {
		for len(msgs) < n {
			msg, ok := e.w.m.server.nextShared(e.w)
			if !ok {
				break
			}
			e.w.m.did("fetched")
			msgs = append(msgs, msg)
		}
		return nil
	})
	if len(msgs) == 0 || err != nil {
		retry.Sleep(context.Background(), wait)
		return 0, nil
	}
	for _, msg := range msgs {
		take(msg)
	}
	return len(msgs), nil
}

func (e *modelShared) pull() (leasePull, error) {
	m := e.w.m
	p := &modelPull{w: e.w, in: make(chan *modelMessage, 16*modelInputs), broken: make(chan error, 1), open: true}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.w.dead {
		m.server.pulls = append(m.server.pulls, p)
		e.w.pulls = append(e.w.pulls, p)
	}
	return sharedPull{p}, nil
}

// sharedPull is a pull of shared delivery.
type sharedPull struct{ *modelPull }

func (p sharedPull) next(ctx context.Context) (inflight.Incoming, error) {
	for {
		select {
		case msg := <-p.in:
			return msg, nil
		default:
		}
		if p.isOver() {
			return nil, pull.ErrEnded
		}
		select {
		case msg := <-p.in:
			return msg, nil
		case err := <-p.broken:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond): // drain doesn't wake it
		}
	}
}

func (p sharedPull) isOver() bool {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	return !p.open && len(p.wire) == 0
}

func (p sharedPull) Drain() {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	p.open = false
}

func (p sharedPull) rest(yield func(inflight.Incoming) bool) {
	for {
		select {
		case msg := <-p.in:
			if !yield(msg) {
				return
			}
		default:
			return
		}
	}
}

func (p sharedPull) leave(context.Context, uint64) {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	p.open, p.leaving, p.wire = false, true, nil
}

// The following methods implement sharedDevices.

func (e *modelShared) serve(q *inflight.Queue) (stop func()) { return e.w.serve(q, e) }

func (e *modelShared) of(*streams.Pipeline) quarantine.Device { return e }

func (e *modelShared) limit() int { return 1 + e.w.m.batchSize(e.w, e.w.device.pipe.BatchPayloads()) }

// submit computes a batch at once. The scheduler determines its outcome.
func (e *modelShared) submit(p *inflight.Packed) {
	g, device, m := p.Groups[0], e.w.device, e.w.m
	if g.Open() != nil {
		m.did("spread over batches")
	}
	device.mu.Lock()
	computed := modelResults(device.compute(p.Batch))
	device.mu.Unlock()
	e.settlers.Go(func() {
		err := e.w.outcome(e.w.drain, computed)
		switch {
		case errors.Is(err, context.Canceled):
			return // the batch is still on the device
		case err == nil:
			m.collect(g, computed)
			g.Collected()
			e.w.judge.CameRight(device.pipe, g)
		case streams.Ended(err):
			e.stop(err)
		}
		p.Complete(streams.Record{}, err)
	})
}

// batchSize returns a random number below limit for the next batch of w.
func (m *leaseModel) batchSize(w *leaseWorker, limit int) int {
	m.mu.Lock()
	w.packs++
	packs := w.packs
	m.mu.Unlock()
	return int((m.seed + uint64(packs)*2654435761) >> 7 % uint64(limit))
}
