// Package ingest implements the worker. A worker pulls payloads from a JetStream stream, packs them into batches for a pipeline,
// and publishes the results. It acknowledges an input only after the server has confirmed the input's result or dead letter. Each
// result is stored exactly once with exclusive delivery and commit markers, and otherwise once within the result stream's duplicate
// window.
//
// cmd/worker and the benchmarks run a worker. This package only connects the parts of a worker, which are separate packages:
//
//   - pull receives messages.
//   - inflight packs batches and bounds memory.
//   - results encodes results.
//   - store stores them in the streams.
//   - quarantine isolates payloads that may break the device.
//   - lease uses these packages in both delivery modes.
//   - topology creates the streams and consumers.
//
// Start reading at Worker.Run, then at package lease.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/streams"
)

// Worker moves payloads from the input stream through pipelines to the result stream.
type Worker struct {
	opts     Options
	log      *slog.Logger
	observer Observer
	conns    natsconn.Connections
	pipes    []*streams.Pipeline
	ackWait  time.Duration // the consumer's AckWait

	pool    *inflight.Pool
	results *results.Writer
	judge   *quarantine.Judge
	stalls  *stall.Detector
	trimmer *trim.Trimmer
	devices *lease.Devices
	mode    lease.Mode

	started  atomic.Bool
	progress inflight.Progress
}

// NewWorker returns a worker that uses an open connection and pipelines, which the caller still owns. The streams and the consumer
// must exist (see topology.Provision). NewWorker returns an error if a stream or the consumer is missing or misconfigured.
func NewWorker(ctx context.Context, nc *nats.Conn, pipes []*streams.Pipeline, opts Options) (*Worker, error) {
	if err := checkPipelines(pipes); err != nil {
		return nil, err
	}
	js, err := opts.API.New(nc)
	if err != nil {
		return nil, err
	}
	consumer, err := findConsumer(ctx, js, opts.Topology)
	if err != nil {
		return nil, err
	}
	settings := consumer.CachedInfo().Config
	limit := topology.DeliveryLimit(opts.MaxDeliver, settings.MaxDeliver)
	w := &Worker{
		opts: opts, log: opts.Logger, observer: opts.Observer, conns: append(natsconn.Connections{nc}, opts.More...), pipes: pipes,
		ackWait: settings.AckWait, stalls: stall.NewDetector(opts.consumers(), opts.Logger, opts.Observer),
	}
	w.trimmer = trim.New(trim.Options{
		JS: js, Stream: opts.Stream, Policy: opts.Trim, Consumers: opts.Consumers(), Log: opts.Logger, Observer: opts.Observer,
	})
	if err := w.trimmer.Register(ctx); err != nil {
		w.log.Warn("this worker removes no processed inputs, and others may remove inputs of its consumers while these are missing", "error", err)
	}
	w.results, err = results.NewWriter(ctx, w.conns, results.Options{
		Topology: opts.Topology, Operators: opts.Operators, Format: opts.Format, AnnotateAs: opts.Split.Annotate, Filter: opts.Filter, Encoding: opts.Compress, AckWait: w.ackWait,
		Log: opts.Logger, Observer: opts.Observer, Progress: &w.progress, Stored: opts.settled, Timeout: opts.publishTimeout,
	})
	if err != nil {
		return nil, err
	}
	w.judge = quarantine.NewJudge(pipes, limit, &w.progress, w.log)
	w.pool, err = inflight.NewPool(pipes, opts.memory(nc.MaxPayload(), pull.NewSize(settings), len(w.conns)))
	if err != nil {
		return nil, err
	}
	w.devices = lease.NewDevices(lease.DeviceOptions{
		Pipes: pipes, Pool: w.pool, Judge: w.judge, Linger: opts.Linger, Spread: opts.Exclusive, Batches: opts.Batches, Records: opts.Records,
	})
	w.mode, err = lease.New(lease.Options{
		Topology: opts.Topology, Pipes: pipes, Conns: w.conns, JS: js, Consumer: consumer, Devices: w.devices, Pool: w.pool, Results: w.results, Judge: w.judge, State: opts.State,
		Stalls: w.stalls, Size: func(c jetstream.Consumer) pull.Size { return opts.pullSize(nc.MaxPayload(), c.CachedInfo().Config) }, Limit: limit, Linger: opts.Linger,
		Confirm: opts.ConfirmAcks, Log: w.log, Observer: w.observer,
	})
	if err != nil {
		return nil, err
	}
	for _, f := range inflight.ParseFaults(settings.Metadata[inflight.FaultNote]) {
		w.observer.OperatorFault(f)
	}
	w.progress.Mark()
	return w, nil
}

// checkPipelines checks that every pipeline has more batches than packers, because isolated retry needs a separate batch.
func checkPipelines(pipes []*streams.Pipeline) error {
	if len(pipes) == 0 {
		return errors.New("ingest: no pipelines")
	}
	for _, p := range pipes {
		if p.Slots() <= inflight.Packers(p) {
			return fmt.Errorf("ingest: the pipeline on %s has %d batches for %d packers: it needs one more, to try suspects in",
				p.Device().ID, p.Slots(), inflight.Packers(p))
		}
	}
	return nil
}

// findConsumer returns the worker's consumer. With partitions it returns the consumer of partition 0, because the consumers of all
// partitions have the same settings.
func findConsumer(ctx context.Context, js jetstream.JetStream, t topology.Topology) (jetstream.Consumer, error) {
	name := t.Consumer
	if t.Exclusive {
		name = topology.PartitionConsumer(name, 0)
	}
	consumer, err := js.Consumer(ctx, t.Stream, name)
	if err != nil {
		return nil, fmt.Errorf("consumer %q on stream %q: %w", name, t.Stream, err)
	}
	return consumer, nil
}

// ConsumerSettings returns the settings of the worker's consumer. They are zero if the consumer doesn't exist yet or can't be
// read.
func ConsumerSettings(ctx context.Context, nc *nats.Conn, t topology.Topology) (c jetstream.ConsumerConfig) {
	if js, err := t.API.New(nc); err == nil {
		if consumer, err := findConsumer(ctx, js, t); err == nil {
			c = consumer.CachedInfo().Config
		}
	}
	return c
}

// Run runs the worker until ctx is done, and then drains it. A drain stops the pull and settles the received deliveries. After
// Options.DrainTimeout, the worker gives back unfinished deliveries, which may take another second. A worker without a connection
// and without payloads ends at once. Run returns nil after a drain if the server has received the acknowledgements.
// Otherwise Run returns the error that ended it, for example an error that wraps device.ErrLost, or the permanent loss of a
// connection. Run may be called only once.
func (w *Worker) Run(ctx context.Context) error {
	if w.started.Swap(true) {
		return errors.New("ingest: a worker runs once")
	}
	before := w.progress.Last()
	intake, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	drainCtx, endDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer endDrain()
	context.AfterFunc(intake, func() {
		time.AfterFunc(w.opts.DrainTimeout, endDrain)
		w.endWhenIdle(drainCtx, endDrain)
	})
	w.endWhenClosed(stop)
	defer w.pool.StartKeepAlive(w.ackWait)()
	defer w.startTrimmer(intake)()
	endDevices := w.devices.Start(drainCtx, stop)
	w.mode.Run(intake, drainCtx, stop)
	endDevices()
	w.mode.Abandon()
	w.reportFaults()
	if err := w.conns.Ended(); err != nil {
		return err
	}
	if before.Equal(w.progress.Last()) && !w.anyConnected() {
		return ended(intake) // there are no acknowledgements to flush
	}
	return errors.Join(ended(intake), w.flush(drainCtx))
}

// endWhenClosed calls stop if the client closes a connection permanently (see Connections.Ended).
func (w *Worker) endWhenClosed(stop context.CancelCauseFunc) {
	for _, nc := range w.conns {
		nc.SetClosedHandler(func(*nats.Conn) { stop(w.conns.Ended()) })
	}
}

// startTrimmer starts a goroutine that removes processed inputs until intake ends. The returned function waits for that goroutine.
func (w *Worker) startTrimmer(intake context.Context) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() { w.trimmer.Run(intake) })
	return wg.Wait
}

// reportFaults reports the operators that have lost a device to the observer.
func (w *Worker) reportFaults() {
	for _, pipe := range w.pipes {
		if f, ok := inflight.FaultOf(pipe); ok {
			w.observer.OperatorFault(f)
		}
	}
}

// ended returns the error that stopped intake, or nil if the caller stopped it.
func ended(intake context.Context) error {
	if cause := context.Cause(intake); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// lastFlush is the time limit for sending the last acknowledgements after drainCtx has ended.
const lastFlush = time.Second

// flush waits until the server has received every acknowledgement. It fails if that takes longer than lastFlush after the end of
// drainCtx.
func (w *Worker) flush(drainCtx context.Context) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.opts.DrainTimeout+lastFlush)
	defer cancel()
	defer context.AfterFunc(drainCtx, func() { time.AfterFunc(lastFlush, cancel) })()
	if err := w.conns.Flush(ctx); err != nil {
		return fmt.Errorf("the last acknowledgements may not have reached the server; what they were for is delivered again: %w", err)
	}
	return nil
}

const (
	// idleEvery is the interval between the checks of endWhenIdle.
	idleEvery = 50 * time.Millisecond

	// idleChecks is the number of consecutive idle checks after which endWhenIdle ends the drain. One check isn't enough, because a
	// message on the way from a connection to a batch isn't counted.
	idleChecks = 3
)

// endWhenIdle ends a drain early if no connection is up and the worker holds no payload. A drain with a connection needs no such
// check.
func (w *Worker) endWhenIdle(drainCtx context.Context, end func()) {
	idle := 0
	for retry.Sleep(drainCtx, idleEvery) {
		if idle++; w.anyConnected() || w.pool.InFlight() > 0 || w.pool.Memory().Used > 0 {
			idle = 0
		}
		if idle == idleChecks {
			w.log.Info("there is no connection to NATS and nothing in hand, so the worker ends at once")
			end()
		}
	}
}

func (w *Worker) anyConnected() bool { return slices.ContainsFunc(w.conns, (*nats.Conn).IsConnected) }
