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
	"runtime"
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
	ackWait  time.Duration     // the consumer's
	maxBytes int               // of a payload: what the smallest batch takes
	limit    int               // deliveries of a payload before it is given up
	last     int               // the consumer's own limit of deliveries; 0 or less: none
	levels   quarantine.Levels // how those are tried that came before
	judge    *quarantine.Judge
	bisector *quarantine.Bisector

	pool    *inflight.Pool
	buffers *inflight.FreeList[*results.Buffers] // of those who settle, with shared delivery
	ledger  *ledger
	window  *inflight.Window // of shared delivery

	exclusive atomic.Pointer[exclusive] // while it runs with exclusive delivery

	stalls  *stalls
	handing atomic.Bool // with shared delivery: what was pulled is handed on or tried, and nothing more is asked for meanwhile

	unread unread // taken from the server and not processed when intake ended
	dead   *deadLetters

	confirming chan struct{} // a token for each acknowledgement that waits to be confirmed

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
		if p.Slots() <= batchers(p) {
			return nil, fmt.Errorf("ingest: the pipeline on %s has %d batches for %d batchers: it needs one more, to try suspects in",
				p.Device().ID, p.Slots(), batchers(p))
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
		maxBytes: inflight.SmallestBatch(pipes), dead: newDeadLetters(), ledger: newLedger(),
		confirming: make(chan struct{}, confirmAtOnce),
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
	w.limit, w.last = topology.DeliveryLimit(opts.MaxDeliver, settings.MaxDeliver), settings.MaxDeliver
	w.levels = quarantine.Levels{Full: fullBatch(pipes), Limit: w.limit}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	w.progressed()
	return w, nil
}

// fullBatch is how many payloads every pipeline's batch can hold.
func fullBatch(pipes []*streams.Pipeline) int {
	full := pipes[0].BatchPayloads()
	for _, p := range pipes {
		full = min(full, p.BatchPayloads())
	}
	return full
}

// prepare makes what bounds and judges what is in flight.
func (w *Worker) prepare() (err error) {
	slots := 0
	w.judge = quarantine.NewJudge(w.pipes, w.limit, w.progressed, w.log)
	for _, p := range w.pipes {
		slots += p.Slots()
	}
	w.buffers = inflight.NewFreeList(inflight.BatchesPerSlot*slots, func() *results.Buffers { return &results.Buffers{} })
	w.window = inflight.NewWindow(len(w.conns.ForResults(w.opts.Exclusive)))
	w.pool, err = inflight.NewPool(w.pipes, inflight.Settings{
		Costs: inflight.NewCosts(w.opts.Format, w.opts.Operators), Memory: w.opts.Memory, Fixed: w.fixedMemory(), Largest: w.nc.MaxPayload(),
	})
	if err == nil {
		w.bisector = quarantine.NewBisector(w.isolation(), slots)
	}
	return err
}

// isolation is what trying deliveries apart from others needs.
func (w *Worker) isolation() quarantine.Isolation {
	return quarantine.Isolation{
		Pool: w.pool, Judge: w.judge, Ends: w, Levels: w.levels, Limit: w.limit, Log: w.log,
		Attempts: &quarantine.Attempts{JS: w.js, Consumer: w.consumer, Stream: w.opts.Stream, Log: w.log},
	}
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

	if w.opts.Exclusive {
		return w.runExclusive(intake, hard, stopIntake)
	}
	settled := make(chan struct{})
	var settlers, intakers sync.WaitGroup
	src := w.newSource(hard)
	w.startSettlers(&settlers, settled, hard)
	settlers.Go(func() { w.bisector.Run(settled, hard) })
	stopKeeping := w.pool.StartKeepAlive(w.ackWait)
	defer stopKeeping()
	defer w.startBacklogWatch()()
	w.startIntake(&intakers, intake, hard, src, stopIntake)

	intakers.Wait()
	w.giveBackUnread()
	w.pool.AwaitIdle(hard)
	close(settled)
	settlers.Wait()
	w.dead.stored.Wait()
	w.giveUpUnfinished()
	if err := w.flush(hard); err != nil {
		return errors.Join(ended(intake), err)
	}
	return ended(intake)
}

// runExclusive is Run where each worker has partitions to itself.
func (w *Worker) runExclusive(intake, hard context.Context, stop context.CancelCauseFunc) error {
	defer stop(nil)
	e, err := newExclusive(w)
	if err != nil {
		return err
	}
	w.exclusive.Store(e)
	defer w.pool.StartKeepAlive(w.ackWait)()
	e.run(intake, hard, stop)
	w.pool.Abandon(func(*inflight.Batch) {}) // what was on a device when the time for draining was over
	return errors.Join(ended(intake), w.flush(hard))
}

// ended is why intake stopped: nil where the caller asked for it.
func ended(intake context.Context) error {
	if cause := context.Cause(intake); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// batchers is how many goroutines pack and submit batches for a pipeline. One packs at a time, since a core copies payloads
// faster than a server delivers them. But a submission takes as long as a small batch is on a GPU: one alone would keep
// lanes waiting that could overlap. More than half of the cores would take them from the server's and the client's work.
func batchers(p *streams.Pipeline) int {
	return max(min(p.Lanes(), runtime.GOMAXPROCS(0)/2), 1)
}

// newSource makes what pulls from the consumer.
func (w *Worker) newSource(hard context.Context) *source {
	src := &source{
		nc: w.nc, consumer: w.consumer, out: inflight.NewQueue(inflight.QueueMost), handing: &w.handing, log: w.log, observer: w.observer,
		size: w.pullSize(w.consumer), unread: w.unread.add,
		hold: w.pool.Hold, force: w.pool.Force, admit: func(d *inflight.Delivery) bool { return w.admit(hard, d) },
	}
	src.limit = src.size.Limit(w.nc)
	src.ledger, src.conns, src.hard = w.ledger, w.conns, hard
	src.isolated = quarantine.NewController(hard, src, w.pipes, w.maxBytes, w.ackWait, w.isolation())
	return src
}

// startIntake runs the source and the batchers of each pipeline; whichever fails stops the intake of all.
func (w *Worker) startIntake(wg *sync.WaitGroup, ctx, hard context.Context, src *source, stop context.CancelCauseFunc) {
	wg.Go(func() {
		if err := src.run(ctx, hard); err != nil {
			stop(err)
		}
	})
	for _, p := range w.pipes {
		f := w.pool.NewBatcher(p, src.out, w.opts.Linger, w.window, w.unread.add)
		for range batchers(p) {
			wg.Go(func() {
				if err := w.runBatcher(hard, f); err != nil {
					stop(err)
				}
				f.Leave()
			})
		}
		wg.Go(func() {
			select {
			case <-p.Over():
				stop(p.Err())
			case <-ctx.Done():
			}
		})
	}
}

// startSettlers runs as many settlers for each pipeline as there can be batches in hand, so that no batch keeps
// its buffers while the results of others wait for the server.
func (w *Worker) startSettlers(wg *sync.WaitGroup, done <-chan struct{}, hard context.Context) {
	for _, p := range w.pipes {
		for range inflight.BatchesPerSlot * p.Slots() {
			wg.Go(func() { (&settler{w: w, pipe: p}).run(done, hard) })
		}
	}
}
