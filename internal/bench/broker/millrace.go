package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/bench"
	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// These are the worker's defaults for the records per generation, the bounds of a batch and the linger time. The bounds
// apply if the configuration has none.
const (
	stateRecords  = 1_000_000
	batchBytes    = 4 << 20
	batchPayloads = 8192
	linger        = 2 * time.Millisecond
)

// pipelineConfig returns the worker's configuration for a device.
func pipelineConfig(session *bench.Session, d device.Info, ops []operator.Operator) streams.Options {
	o := session.Pipeline(d, ops)
	o.Lanes = session.Lanes
	if o.BatchBytes == 0 {
		o.BatchBytes = batchBytes
	}
	if o.BatchPayloads == 0 {
		o.BatchPayloads = batchPayloads
	}
	return o
}

// millrace is the real worker, with a pipeline on every device.
type millrace struct {
	session     *bench.Session
	ops         []operator.Operator
	connections int // number of connections to the server

	stateRecords int // records per generation of a state

	conns []*nats.Conn
	pipes []*streams.Pipeline
	w     *ingest.Worker
	tally *tally
	ended batchCounter
	stop  context.CancelFunc // nil while the worker does not run
	done  chan error         // receives the result of Run
}

func (m *millrace) prepare(ctx context.Context, p pairs, l load) (err error) {
	for _, d := range m.session.Devices {
		pipe, err := streams.New(d, pipelineConfig(m.session, d.Info(), m.ops))
		if err != nil {
			return err
		}
		m.pipes = append(m.pipes, pipe)
		if l.size > pipe.BatchBytes() {
			return bench.Unable("a payload of %d bytes is larger than a batch: raise MILLRACE_BATCH_BYTES", l.size)
		}
	}
	if m.conns, err = p[0].dial("millrace-bench", m.connections); err != nil {
		return err
	}
	m.tally = &tally{want: int64(len(p) * l.n), all: make(chan struct{}), failed: make(chan error, 1)}
	o := ingest.Options{
		Topology: p[0].topology(), More: m.conns[1:], Linger: linger, DrainTimeout: time.Minute,
		Logger: quiet, Observer: m.tally, Records: &m.ended,
	}
	o.Messages = l.messages(m.ops)
	if o.State, err = stateOptions(m.ops, m.stateRecords, m.pipes[0]); err != nil {
		return err
	}
	if o.Many = len(p) > 1; o.Many {
		o.Stream, o.Shards = "", len(p)
	}
	if m.w, err = ingest.NewWorker(ctx, m.conns[0], m.pipes, o); err != nil || !o.Many {
		return err
	}
	for _, one := range p {
		if err := m.w.Add(ctx, one.topology()); err != nil {
			return err
		}
	}
	return nil
}

func (m *millrace) run(ctx context.Context, _ load) error {
	working, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	go func() { m.done <- m.w.Run(working) }()
	select {
	case <-m.tally.all:
		return flush(ctx, m.conns)
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
	closeAll(m.conns)
	for _, p := range m.pipes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func (m *millrace) batches() int64 { return m.ended.Load() }

// batchCounter counts the batches of results, of which each partition stores its own.
type batchCounter struct{ atomic.Int64 }

// BatchDone implements inflight.RecordObserver.
func (b *batchCounter) BatchDone(*inflight.Record) { b.Add(1) }

// tally is an observer that signals the end of a worker's load.
type tally struct {
	want    int64
	settled atomic.Int64
	all     chan struct{} // closed when every result is stored and every input is acknowledged
	failed  chan error    // receives the first dead letter as an error
}

// Settled implements ingest.Observer.
func (t *tally) Settled(o inflight.Outcome, in, _ int, _, _ time.Duration) {
	switch o {
	case inflight.Nacked: // the server redelivers the payload
	case inflight.DeadLettered:
		select {
		case t.failed <- fmt.Errorf("a payload of %d bytes became a dead letter", in):
		default:
		}
	default:
		if t.settled.Add(1) == t.want {
			close(t.all)
		}
	}
}

// The other methods of ingest.Observer do nothing.

func (*tally) Frame(inflight.FrameStats)            {}
func (*tally) Redelivered()                         {}
func (*tally) Stalled(int)                          {}
func (*tally) Trim(uint64, trim.State)              {}
func (*tally) StateLogged(int)                      {}
func (*tally) StateReplayed(int)                    {}
func (*tally) StateTrimFailed()                     {}
func (*tally) Restarted()                           {}
func (*tally) Pending(uint64)                       {}
func (*tally) Unacknowledged(uint64)                {}
func (*tally) OperatorFault(inflight.OperatorFault) {}
func (*tally) DeadLettered(inflight.DeadLetter)     {}
func (*tally) PayloadLeftOut()                      {}
func (*tally) Reconnected()                         {}
