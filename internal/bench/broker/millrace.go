package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"millrace/internal/bench"
	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// linger is the worker's default: how long the oldest payload of a batch waits for more payloads.
const linger = 2 * time.Millisecond

// millrace is the real worker, with a pipeline on every device.
type millrace struct {
	devices     []device.Device
	config      func(device.Info) streams.Config
	ops         []operator.Operator
	exclusive   bool                // exclusive delivery; otherwise shared
	guarantee   guarantee           // of exclusive delivery
	connections int                 // number of connections to the server
	took        func(time.Duration) // receives the time of each payload from received to stored; nil for none

	client
	tally *tally
	ended batchCounter
	pipes []*streams.Pipeline
	w     *ingest.Worker
	stop  context.CancelFunc // nil while the worker does not run
	done  chan error         // receives the result of Run
}

func (m *millrace) ready(ctx context.Context, s *server, l load) (err error) {
	m.tally = newTally(l.n, m.took)
	for _, d := range m.devices {
		p, err := streams.New(d, m.config(d.Info()))
		if err != nil {
			return err
		}
		m.pipes = append(m.pipes, p)
		if size := l.recordBytes(); size > p.BatchBytes() {
			return bench.Unable("a payload of %d bytes is larger than a batch: raise MILLRACE_BATCH_BYTES", size)
		}
	}
	if err := m.dial(s, "millrace", m.connections, sendWindow); err != nil {
		return err
	}
	t := s.topology(m.exclusive)
	m.guarantee.configure(&t)
	if err := s.takesMarkers(ctx, t); err != nil {
		return err
	}
	o := ingest.Options{
		Topology: t, More: m.conns[1:], Operators: m.ops, Linger: linger, DrainTimeout: time.Minute,
		Logger: quiet, Observer: m.tally, Records: &m.ended,
	}
	l.configure(&o)
	m.w, err = ingest.NewWorker(ctx, m.conns[0], m.pipes, o)
	return err
}

func (m *millrace) run(ctx context.Context, _ load) error {
	working, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	go func() { m.done <- m.w.Run(working) }()
	select {
	case <-m.tally.all:
		return m.conns[0].FlushWithContext(ctx)
	case err := <-m.tally.failed:
		return err
	case err := <-m.done:
		m.done <- err
		return fmt.Errorf("the worker stopped unexpectedly: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *millrace) close() error {
	var errs []error
	if m.stop != nil {
		m.stop()
		errs = append(errs, <-m.done)
	}
	errs = append(errs, m.client.close())
	for _, p := range m.pipes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// memory returns the host memory of the pipelines' batches in bytes, pinned and pageable.
func (m *millrace) memory() (bytes int64, err error) {
	for _, p := range m.pipes {
		s, err := p.Stats()
		if err != nil {
			return 0, err
		}
		bytes += s.Pinned + s.Pageable
	}
	return bytes, nil
}

// groups implements grouping.
func (m *millrace) groups() int64 { return m.ended.Load() }

// batchCounter counts the batches of all pipelines.
type batchCounter struct{ atomic.Int64 }

// BatchDone implements inflight.RecordObserver.
func (c *batchCounter) BatchDone(*inflight.Record) { c.Add(1) }
