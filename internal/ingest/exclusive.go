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
	"github.com/nats-io/nuid"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/members"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Exclusive delivery: the input stream puts the number of a partition before each subject, every partition has a
// consumer, and the server gives each consumer's messages to one worker at a time. Which worker that is to be, the
// workers agree on among themselves (members). While one has a partition it holds a lease on it.

// pullFor is how long a pull request lasts, and how often the server hears of a worker that is behind.
const pullFor = time.Second

// exclusive is a worker's part in exclusive delivery.
type exclusive struct {
	w       *Worker
	js      jetstream.JetStream
	id      string
	members *members.Members
	backlog *backlog
	custody *custody
	handing []atomic.Bool                       // by partition: its lease has a delivery to pass on and asks for nothing; see stalls
	gates   map[*streams.Pipeline]*sync.RWMutex // held by what is on a device; exclusively by what must be alone there
	under   map[*streams.Pipeline]*atomic.Int32 // batches of a device's partitions that are submitted and not settled
}

func newExclusive(w *Worker) (*exclusive, error) {
	js, err := jetstream.New(w.nc)
	if err != nil {
		return nil, err
	}
	e := &exclusive{w: w, js: js, id: nuid.Next(), backlog: newBacklog(w.observer, w.opts.Partitions), gates: map[*streams.Pipeline]*sync.RWMutex{}, under: map[*streams.Pipeline]*atomic.Int32{}}
	for _, p := range w.pipes {
		e.gates[p], e.under[p] = &sync.RWMutex{}, &atomic.Int32{}
	}
	if e.members, err = members.Join(w.nc, w.opts.Stream, w.opts.Consumer, w.opts.Partitions, e.id); err != nil {
		return nil, err
	}
	e.custody, e.handing = newCustody(e.members, w.opts.Partitions, w.log), make([]atomic.Bool, w.opts.Partitions)
	return e, nil
}

// run works on the partitions that are this worker's until ctx is done, and then finishes the batches in flight until drainCtx
// ends. If something ends it before, it passes that to stop, which ends ctx.
func (e *exclusive) run(ctx, drainCtx context.Context, stop context.CancelCauseFunc) {
	var keepers, helpers sync.WaitGroup
	completed, finish := context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range e.w.pipes {
		for range inflight.Batchers(p) {
			helpers.Go(func() { e.encodeCompleted(completed, p) })
		}
		helpers.Go(func() {
			select {
			case <-p.Over():
				stop(p.Err())
			case <-completed.Done():
			}
		})
	}
	membership, leave := context.WithCancel(context.WithoutCancel(ctx))
	helpers.Go(func() { e.members.Run(membership) })
	helpers.Go(func() { e.watchBacklog(membership) })
	helpers.Go(func() { e.custody.watch(membership, func(p int) { e.lookAt(membership, p) }) })
	for p := range e.w.opts.Partitions {
		keepers.Go(func() {
			if err := e.keep(ctx, drainCtx, p); err != nil {
				stop(err)
			}
		})
	}
	keepers.Wait()
	leave()
	finish()
	helpers.Wait()
}

// keep holds leases on a partition whenever it is this worker's, until ctx is done.
func (e *exclusive) keep(ctx, drainCtx context.Context, p int) error {
	for e.members.Await(ctx, p, true) {
		mine, dismiss := context.WithCancel(ctx)
		go func() {
			e.members.Await(mine, p, false)
			dismiss()
		}()
		err := e.hold(mine, drainCtx, p)
		if mine.Err() != nil && ctx.Err() == nil && e.custody.gave(p) {
			e.lookAt(ctx, p) // a worker that waits for the partition has it by now
		}
		dismiss()
		if err != nil {
			return err
		}
	}
	return nil
}

// hold holds one lease after another until the partition is not this worker's any more. It returns an error only for what
// ends the worker.
func (e *exclusive) hold(ctx, drainCtx context.Context, p int) error {
	pipe := e.w.pipes[p%len(e.w.pipes)]
	log := e.w.log.With("partition", p)
	var often restarts
	for attempt, n := 1, 0; ctx.Err() == nil; attempt, n = attempt+1, n+1 {
		if !e.w.conns[:1].AwaitConnected(ctx) {
			return nil
		}
		inputs := e.w.conns.ForPartition(p, n)
		progressed := false
		l, err := e.newLease(ctx, p, inputs, pipe, log)
		if err == nil {
			err = l.run(ctx, drainCtx)
			progressed = l.progressed
		}
		switch {
		case pipe.Err() != nil:
			return pipe.Err()
		case errors.Is(err, jetstream.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("partition %d: %w", p, err)
		case ctx.Err() != nil:
			return nil
		case progressed:
			attempt = 1
		}
		e.w.observer.Restarted()
		often.say(log, err, time.Now())
		if !retry.Sleep(ctx, retry.Delay(attempt)) {
			return nil
		}
	}
	return nil
}

// newLease makes a lease on a partition whose inputs come over that connection.
func (e *exclusive) newLease(ctx context.Context, p int, inputs *nats.Conn, pipe *streams.Pipeline, log *slog.Logger) (*lease, error) {
	w := e.w
	name := topology.PartitionConsumer(w.opts.Consumer, p)
	consumer, err := e.js.Consumer(ctx, w.opts.Stream, name)
	if err != nil {
		return nil, err
	}
	size := w.opts.pullSize(consumer, w.nc)
	server := &consumerServer{
		js: e.js, requests: w.nc, inputs: inputs, stream: w.opts.Stream, name: name, partition: p, consumer: consumer,
		request: pull.Request{
			Stream: w.opts.Stream, Consumer: name, Group: topology.PriorityGroup,
			Messages: size.Messages, Limit: size.Limit(inputs), Expires: pullFor, Heartbeat: pullFor / 2, Idle: topology.PinnedFor,
		},
	}
	l := newLease(e.id, w.opts.Stream, server, &partitionHost{e: e, w: w, partition: p}, log)
	l.subjects, l.maxBytes, l.order = w.opts.Subjects, w.maxBytes, make(chan *inflight.Batch, w.pool.Size())
	l.batches = newPipelineBatches(l, e, pipe)
	return l, nil
}

// encodeCompleted takes batches as they come from the device, in whatever order, encodes their results so that their
// buffers are free again, and leaves the rest to the lease that each belongs to.
func (e *exclusive) encodeCompleted(ctx context.Context, pipe *streams.Pipeline) {
	s := &results.Buffers{}
	for {
		select {
		case b := <-pipe.Completed():
			g := b.Owner.(*inflight.Batch)
			record, err := *b.ReadRecord(), b.Err()
			if err == nil {
				e.w.judge.CameRight(pipe, g)
				e.w.results.Encode(g, b, s)
			}
			b.Release()
			g.Complete(record, err)
		case <-ctx.Done():
			return
		}
	}
}
