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
// A shard is an input stream, its consumer, and the result stream that its subjects map to. A worker has one shard or many (adr/0060).
// Start reading at Worker.Run, then at shard.run, then at package lease.
package ingest

import (
	"context"
	"errors"
	"fmt"
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
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Worker moves payloads from input streams through pipelines to result streams.
type Worker struct {
	resources
	pipes []*streams.Pipeline
	judge *quarantine.Judge

	adding sync.Mutex // held while a shard is opened
	mu     sync.Mutex
	shards []*shard       // shards that are open and not ended
	start  func(s *shard) // starts a shard; nil before Run and after its intake has ended
	over   bool           // whether the intake of Run has ended

	started atomic.Bool
}

// NewWorker returns a worker that uses an open connection and pipelines, which the caller still owns. The streams and the consumer
// of Options.Topology must exist (see topology.Provision). NewWorker returns an error if a stream or the consumer is missing or
// misconfigured.
func NewWorker(ctx context.Context, nc *nats.Conn, pipes []*streams.Pipeline, opts Options) (*Worker, error) {
	if err := checkPipelines(pipes); err != nil {
		return nil, err
	}
	js, err := opts.API.New(nc)
	if err != nil {
		return nil, err
	}
	w := &Worker{pipes: pipes, resources: resources{
		opts: opts, log: opts.Logger, conns: append(natsconn.Connections{nc}, opts.More...), js: js,
		totals: totals{observer: opts.Observer, shards: map[*shardObserver]bool{}},
	}}
	settings := jetstream.ConsumerConfig{}
	if opts.Stream != "" {
		consumer, err := findConsumer(ctx, js, opts.Topology)
		if err != nil {
			return nil, err
		}
		settings = consumer.CachedInfo().Config
	}
	w.judge = quarantine.NewJudge(pipes, &w.progress, w.log)
	w.pool, err = inflight.NewPool(pipes, opts.memory(nc.MaxPayload(), pull.NewSize(settings), len(w.conns)))
	if err != nil {
		return nil, err
	}
	w.devices = lease.NewDevices(lease.DeviceOptions{
		Pipes: pipes, Pool: w.pool, Judge: w.judge, Linger: opts.Linger, Spread: opts.Exclusive, Batches: opts.Batches, Records: opts.Records,
	})
	if opts.Stream != "" {
		if err := w.Add(ctx, opts.Topology); err != nil {
			return nil, err
		}
	}
	w.progress.Mark()
	return w, nil
}

// Add opens a shard with another input stream, and runs it until Drop or the end of Run. The topology's delivery mode must be that of
// Options.Topology. The streams and the consumer must exist. Add may be called before and during Run.
func (w *Worker) Add(ctx context.Context, t topology.Topology) error {
	w.adding.Lock()
	defer w.adding.Unlock()
	open := w.current()
	if slices.ContainsFunc(open, func(s *shard) bool { return s.Stream == t.Stream }) {
		return fmt.Errorf("ingest: stream %s has a shard already", t.Stream)
	}
	s, err := w.open(ctx, t, len(open))
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		s.close()
		return errors.New("ingest: the worker is stopping")
	}
	w.shards = append(w.shards, s)
	if w.start != nil {
		w.start(s)
	}
	return nil
}

// Drop ends the shard of an input stream, for example because the stream is gone. The shard first finishes its inputs, for up to
// Options.DrainTimeout. Drop doesn't wait for that.
func (w *Worker) Drop(stream string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shards {
		if s.Stream == stream && s.end != nil {
			s.end()
		}
	}
}

// current returns the shards that are open and not ended.
func (w *Worker) current() []*shard {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.shards)
}

// runShards runs all shards until intake ends, including shards that Add opens later. It returns when all have ended.
func (w *Worker) runShards(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	var running sync.WaitGroup
	start := func(s *shard) {
		own, end := context.WithCancel(intake)
		s.end = end
		running.Go(func() {
			w.runShard(own, drainCtx, s, stop)
			if intake.Err() == nil {
				w.remove(s)
			}
		})
	}
	w.mu.Lock()
	for _, s := range w.shards {
		start(s)
	}
	w.start = start
	w.mu.Unlock()
	<-intake.Done()
	w.mu.Lock()
	w.start, w.over = nil, true
	w.mu.Unlock()
	running.Wait()
}

// runShard runs a shard until intake ends. If that happens before the worker stops, the shard has Options.DrainTimeout to finish.
func (w *Worker) runShard(intake, drainCtx context.Context, s *shard, stop context.CancelCauseFunc) {
	draining, end := context.WithCancel(drainCtx)
	defer end()
	defer context.AfterFunc(intake, func() { time.AfterFunc(w.opts.DrainTimeout, end) })()
	s.run(intake, draining, stop)
}

// remove removes a shard that was dropped.
func (w *Worker) remove(s *shard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shards = slices.DeleteFunc(w.shards, func(other *shard) bool { return other == s })
	s.close()
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
	defer w.pool.StartKeepAlive(w.minAckWait)()
	endDevices := w.devices.Start(drainCtx, stop)
	w.runShards(intake, drainCtx, stop)
	endDevices()
	for _, s := range w.current() {
		s.mode.Abandon()
		s.close()
	}
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

// reportFaults reports the operators that have lost a device to the observer.
func (w *Worker) reportFaults() {
	for _, pipe := range w.pipes {
		if f, ok := inflight.FaultOf(pipe); ok {
			w.opts.Observer.OperatorFault(f)
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
