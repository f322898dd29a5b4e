// Package ingest is everything that speaks NATS: it pulls payloads from a JetStream stream, packs them into
// batches for a pipeline, publishes the results, and settles each input when its result is stored, and not
// before. Delivery is at least once: nothing is acknowledged whose result or dead letter the server has not
// confirmed, whatever fails in between.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Worker moves payloads from the input stream through pipelines to the result stream.
type Worker struct {
	nc       *nats.Conn // the first of links
	js       jetstream.JetStream
	conns    natsconn.Connections
	opts     Options
	log      *slog.Logger
	observer Observer
	pipes    []*streams.Pipeline
	consumer jetstream.Consumer
	results  *results.Writer
	ackWait  time.Duration // the consumer's
	maxBytes int           // of a payload: what the smallest batch takes
	limit    int           // deliveries of a payload before it is given up
	judge    *quarantine.Judge

	pool *inflight.Pool

	shared    *sharedMode               // nil with exclusive delivery
	exclusive atomic.Pointer[exclusive] // while it runs with exclusive delivery

	stalls *stalls

	stage   atomic.Int32 // Stage
	moved   atomic.Int64 // when something last moved on, UnixNano
	started sync.Once
}

// NewWorker makes a worker over an open connection and pipelines, which stay the caller's. The streams and
// the consumer must be there (see Provision); what is wrong with them is in the error.
func NewWorker(ctx context.Context, nc *nats.Conn, pipes []*streams.Pipeline, opts Options) (*Worker, error) {
	if len(pipes) == 0 {
		return nil, errors.New("ingest: no pipelines")
	}
	for _, p := range pipes {
		if p.Slots() <= inflight.Batchers(p) {
			return nil, fmt.Errorf("ingest: the pipeline on %s has %d batches for %d batchers: it needs one more, to try suspects in",
				p.Device().ID, p.Slots(), inflight.Batchers(p))
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	name := opts.Consumer
	if opts.Exclusive {
		name = topology.PartitionConsumer(name, 0) // all partitions' consumers are alike
	}
	consumer, err := js.Consumer(ctx, opts.Stream, name)
	if err != nil {
		return nil, fmt.Errorf("consumer %q on stream %q: %w", name, opts.Stream, err)
	}
	w := &Worker{
		nc: nc, js: js, conns: append(natsconn.Connections{nc}, opts.More...), opts: opts, log: opts.Logger, observer: opts.Observer, pipes: pipes,
		consumer: consumer,
		maxBytes: inflight.SmallestBatch(pipes),
	}
	consumers := 1
	if opts.Exclusive {
		consumers = opts.Partitions
	}
	w.stalls = newStalls(consumers, w.log, w.observer)
	settings := consumer.CachedInfo().Config
	w.ackWait = settings.AckWait
	w.results, err = results.NewWriter(ctx, w.conns, results.Settings{
		Topology: opts.Topology, Operators: opts.Operators, Format: opts.Format, AckWait: w.ackWait,
		Log: opts.Logger, Observer: opts.Observer, Progress: w.progressed, Stored: opts.settled, Timeout: opts.publishTimeout,
	})
	if err != nil {
		return nil, err
	}
	w.limit = topology.DeliveryLimit(opts.MaxDeliver, settings.MaxDeliver)
	w.judge = quarantine.NewJudge(pipes, w.limit, w.progressed, w.log)
	w.pool, err = inflight.NewPool(pipes, inflight.Settings{
		Costs: inflight.NewCosts(opts.Format, opts.Operators), Memory: opts.Memory, Fixed: w.fixedMemory(), Largest: nc.MaxPayload(),
	})
	if err != nil {
		return nil, err
	}
	if !opts.Exclusive {
		w.shared = newSharedMode(sharedSettings{
			Pipes: pipes, Conns: w.conns, JS: js, Consumer: consumer, Size: w.pullSize(consumer), Pool: w.pool, Results: w.results, Judge: w.judge,
			Limit: w.limit, Linger: opts.Linger, Confirm: opts.ConfirmAcks, Log: w.log, Observer: w.observer, Batches: opts.Batches, Records: opts.Records,
			Stalls: w.stalls,
		})
	}
	w.progressed()
	return w, nil
}

// Run works until ctx is done, then drains: it stops pulling, finishes what it has received, publishes,
// acknowledges, and after Options.DrainTimeout gives the rest back, for which a second more may pass. It returns
// nil after a drain whose acknowledgements the server has, or what ended it before: an error that wraps
// device.ErrLost, or the loss of the connection for good. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	first := false
	w.started.Do(func() { first = true })
	if !first {
		return errors.New("ingest: a worker runs once")
	}
	intake, stopIntake := context.WithCancelCause(ctx)
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	context.AfterFunc(intake, func() {
		w.stage.CompareAndSwap(int32(Running), int32(Draining))
		time.AfterFunc(w.opts.DrainTimeout, giveUp)
	})
	w.stage.Store(int32(Running))
	defer w.stage.Store(int32(Stopped))

	defer w.pool.StartKeepAlive(w.ackWait)()
	if w.shared != nil {
		w.shared.run(intake, hard, stopIntake)
	} else if err := w.runExclusive(intake, hard, stopIntake); err != nil {
		return err
	}
	return errors.Join(ended(intake), w.flush(hard))
}

// runExclusive is Run where each worker has partitions to itself.
func (w *Worker) runExclusive(intake, hard context.Context, stop context.CancelCauseFunc) error {
	defer stop(nil)
	e, err := newExclusive(w)
	if err != nil {
		return err
	}
	w.exclusive.Store(e)
	e.run(intake, hard, stop)
	w.pool.Abandon(func(*inflight.Batch) {}) // what was on a device when the time for draining was over
	return nil
}

// ended is why intake stopped: nil where the caller asked for it.
func ended(intake context.Context) error {
	if cause := context.Cause(intake); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// unsettled is how many deliveries of shared delivery are not settled.
func (w *Worker) unsettled() int {
	if w.shared == nil {
		return 0
	}
	return w.shared.inFlight()
}
