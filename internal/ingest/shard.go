package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/memory"
)

// resources are what all shards of a worker share.
type resources struct {
	opts     Options
	log      *slog.Logger
	conns    natsconn.Connections
	js       jetstream.JetStream
	pool     *inflight.Pool
	devices  *lease.Devices
	totals   totals
	progress inflight.Progress
}

// shard is an input stream with its consumer, and the streams that store its results. Each shard has its own leases.
type shard struct {
	*resources
	topology.Topology
	ackWait  time.Duration // the consumer's AckWait
	observer *shardObserver
	results  *results.Writer
	stalls   *stall.Detector
	trimmer  *trim.Trimmer
	mode     lease.Mode
	share    *memory.Share      // nil without other shards
	end      context.CancelFunc // ends the shard; nil before it runs
}

const (
	// rememberedByAll is the number of finished inputs that many shards remember together; see lease.Options. Each remembers at least
	// minRemembered.
	rememberedByAll = 1 << 16
	minRemembered   = 1 << 10
)

// open returns a shard that doesn't run yet. The streams and the consumer must exist (see topology.Provision).
func (r *resources) open(ctx context.Context, t topology.Topology, others int) (_ *shard, err error) {
	consumer, err := findConsumer(ctx, r.js, t)
	if err != nil {
		return nil, err
	}
	settings := consumer.CachedInfo().Config
	if err := r.checkMemory(others+1, settings); err != nil {
		return nil, err
	}
	s := &shard{resources: r, Topology: t, ackWait: settings.AckWait, observer: r.totals.add(ShardStatus{Stream: t.Stream, Consumer: settings.Durable, Created: consumer.CachedInfo().Created})}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	log := r.log
	if r.opts.Many {
		log = log.With("shard", t.Stream)
	}
	s.stalls = stall.NewDetector(t.ConsumerCount(), log, s.observer)
	s.trimmer = trim.New(trim.Options{JS: r.js, Stream: t.Stream, Policy: t.Trim, Consumers: t.Consumers(), Log: log, Observer: s.observer})
	if err := s.trimmer.Register(ctx); err != nil {
		log.Warn("this worker removes no processed inputs, and others may remove inputs of its consumers while these are missing", "error", err)
	}
	remembered := 0
	if r.opts.Many {
		s.share = r.pool.NewShare()
		remembered = max(rememberedByAll/(others+1), minRemembered)
	}
	conns := r.conns.From(others)
	o := &r.opts
	s.results, err = results.NewWriter(ctx, conns, results.Options{
		Topology: t, Operators: o.Operators, Format: o.Format, AnnotateAs: o.Split.Annotate, Filter: o.Filter, Encoding: o.Compress, AckWait: s.ackWait,
		Log: log, Observer: s.observer, Progress: &r.progress, Stored: o.settled, Timeout: o.publishTimeout,
	})
	if err != nil {
		return nil, err
	}
	s.mode, err = lease.New(lease.Options{
		Topology: t, Conns: conns, JS: r.js, Consumer: consumer, Devices: r.devices, Results: s.results, Share: s.share, Remembered: remembered, Number: others, State: o.State, Stalls: s.stalls,
		Size: s.pullSize, Limit: topology.DeliveryLimit(t.MaxDeliver, settings.MaxDeliver), Confirm: o.ConfirmAcks, Log: log, Observer: s.observer,
	})
	if err != nil {
		return nil, err
	}
	for _, f := range inflight.ParseFaults(settings.Metadata[inflight.FaultNote]) {
		s.observer.OperatorFault(f)
	}
	return s, nil
}

// checkMemory returns a *memory.Error if the memory is too small for this number of shards.
func (r *resources) checkMemory(shards int, c jetstream.ConsumerConfig) error {
	if !r.opts.Many {
		return nil // NewWorker has checked it
	}
	o := r.opts
	o.Shards = max(shards, o.Shards)
	pipes := r.devices.Pipes
	return o.CheckMemory(r.conns[0].MaxPayload(), c, len(pipes), len(r.conns), pipes[0].BatchBytes())
}

// close releases what the shard shares with others.
func (s *shard) close() {
	s.totals.remove(s.observer)
	if s.share != nil {
		s.share.Close()
	}
	if s.results != nil {
		s.results.Close()
	}
}

// pullSize returns the maximum size of one request to a consumer. All consumers of the worker share the memory for such requests.
func (s *shard) pullSize(c jetstream.Consumer) pull.Size {
	size := pull.NewSize(c.CachedInfo().Config)
	w := s.opts.memory(s.conns[0].MaxPayload(), size, 0)
	w.Consumers = s.ConsumerCount() * max(s.totals.count(), s.opts.Shards)
	size.Requests = w.PullRequests()
	return size
}

// run processes the inputs of the shard until intake ends, and finishes the remaining ones until drainCtx ends. On a failure, it passes
// the cause to stop.
func (s *shard) run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	var trimming sync.WaitGroup
	trimming.Go(func() { s.trimmer.Run(intake) })
	s.mode.Run(intake, drainCtx, stop)
	trimming.Wait()
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
