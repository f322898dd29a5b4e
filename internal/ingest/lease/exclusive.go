package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/members"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/topology"
)

// Exclusive runs exclusive delivery in one worker.
type Exclusive struct {
	o       Options
	id      string
	members *members.Members
	watch   *watch
	states  *states // nil without a stateful operator

	mu        sync.Mutex
	abandoned []*inflight.Queue // queues of leases that ended while batches were on a device
}

// newExclusive joins the group of workers that share the partitions. Call Run afterwards.
func newExclusive(o Options) (*Exclusive, error) {
	m := &Exclusive{o: o, id: nuid.Next()}
	var err error
	if m.states, err = newStates(&m.o); err != nil {
		return nil, err
	}
	if m.members, err = members.Join(o.Conns[0], o.Topology.Stream, o.Topology.Consumer, o.Topology.Partitions, m.id); err != nil {
		return nil, err
	}
	m.watch = newWatch(&m.o, m.info)
	m.watch.custody = newCustody(m.members, o.Topology.Partitions, o.Log)
	return m, nil
}

// Owned returns the number of partitions that this worker owns.
func (m *Exclusive) Owned() int { return m.members.Owned() }

// Shares returns the partitions of each worker, this worker first.
func (m *Exclusive) Shares() []members.Share { return m.members.Shares() }

// States implements Mode.
func (m *Exclusive) States() StateFigures { return m.states.figures() }

// Wanted returns the number of partitions that this worker should own. The worker owns such a partition once the server
// has pinned the worker.
func (m *Exclusive) Wanted() (n int) {
	for p := range m.o.Topology.Partitions {
		if mine, _ := m.members.Mine(p); mine {
			n++
		}
	}
	return n
}

// info returns the state of the consumer of partition p.
func (m *Exclusive) info(ctx context.Context, p int) (*jetstream.ConsumerInfo, error) {
	c, err := m.o.JS.Consumer(ctx, m.o.Topology.Stream, topology.PartitionConsumer(m.o.Topology.Consumer, p))
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// Run processes the partitions that this worker should own, until intake is done. Then it finishes the batches in
// flight, until drainCtx ends. On a failure it passes the error to stop, which must end intake.
func (m *Exclusive) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	if err := m.states.checkSpec(intake); err != nil {
		stop(err)
	}
	var keepers, helpers sync.WaitGroup
	membership, leave := context.WithCancel(context.WithoutCancel(intake))
	helpers.Go(func() { m.members.Run(membership) })
	helpers.Go(func() { m.watch.run(membership) })
	helpers.Go(func() { m.states.follow(membership) })
	helpers.Go(func() { m.states.keepTrimmed(membership) })
	helpers.Go(func() { m.watch.custody.watch(membership, func(p int) { m.watch.check(membership, p) }) })
	for p := range m.o.Topology.Partitions {
		keepers.Go(func() {
			if err := m.keep(intake, drainCtx, p); err != nil {
				stop(err)
			}
		})
	}
	keepers.Wait()
	leave()
	helpers.Wait()
	m.states.closeAll()
}

// Abandon implements Mode. The server redelivers the inputs.
func (m *Exclusive) Abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.abandoned {
		m.o.Pool.Abandon(q, func(*inflight.Batch) {})
	}
}

// keep holds leases on partition p while this worker should own p, until ctx is done.
func (m *Exclusive) keep(ctx, drainCtx context.Context, p int) error {
	for m.members.Await(ctx, p, true) {
		mine, dismiss := context.WithCancel(ctx)
		go func() {
			m.members.Await(mine, p, false)
			dismiss()
		}()
		var err error
		if m.states.reserve(mine, p) {
			err = m.hold(mine, drainCtx, p)
			m.states.free(p)
		}
		if mine.Err() != nil && ctx.Err() == nil && m.watch.custody.gave(p) {
			m.watch.check(ctx, p) // a worker that waited for the partition may own it already
		}
		dismiss()
		if err != nil {
			return err
		}
	}
	return nil
}

// hold holds leases on partition p, one after another, until ctx is done. It returns an error only if the worker must end.
func (m *Exclusive) hold(ctx, drainCtx context.Context, p int) error {
	device := m.o.Devices.all[(p+m.o.Number)%len(m.o.Devices.all)]
	log := m.o.Log.With("partition", p)
	var often restarts
	for attempt, n := 1, 0; ctx.Err() == nil; attempt, n = attempt+1, n+1 {
		if !m.o.Conns[:1].AwaitConnected(ctx) {
			return nil
		}
		inputs := m.o.Conns.ForPartition(p, n)
		progressed := false
		l, err := m.newLease(ctx, p, inputs, device, log)
		if err == nil {
			err = l.run(ctx, drainCtx)
			progressed = l.acks.progressed
			if drainCtx.Err() != nil {
				m.mu.Lock()
				m.abandoned = append(m.abandoned, l.out)
				m.mu.Unlock()
			}
		}
		switch {
		case device.pipe.Err() != nil:
			return device.pipe.Err()
		case errors.As(err, new(*statelog.LostError)):
			return err // every further lease would fail in the same way
		case errors.Is(err, jetstream.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("partition %d: %w", p, err)
		case ctx.Err() != nil:
			return nil
		case progressed:
			attempt = 1
		}
		m.o.Observer.Restarted()
		often.say(log, err, time.Now())
		if !retry.Sleep(ctx, retry.Delay(attempt)) {
			return nil
		}
	}
	return nil
}

const (
	// restartsWindow is the period in which restartsMany restarts of a partition cause a warning. One restart recovers
	// from a single fault, but a recurring fault needs an administrator's attention.
	restartsWindow = time.Minute
	restartsMany   = 3

	// restartsSay is the minimum interval between two warnings about restarts of a partition.
	restartsSay = 10 * time.Second
)

// restarts counts and logs the restarts of a partition's lease.
type restarts struct {
	since  time.Time // start of the window
	n      int       // restarts in the window
	warned time.Time
	silent int // restarts since the last log line
}

// say records and logs a restart. If restarts recur, it logs a warning at most once per restartsSay.
func (r *restarts) say(log *slog.Logger, because error, now time.Time) {
	if now.Sub(r.since) > restartsWindow {
		r.since, r.n = now, 0
	}
	if r.n++; r.n < restartsMany {
		log.Info("beginning the partition anew", "because", because)
		return
	}
	if now.Sub(r.warned) < restartsSay {
		r.silent++
		return
	}
	log.Warn("beginning the partition anew, again and again; its inputs are held up", "because", because, "times", r.n,
		"within", now.Sub(r.since).Round(time.Second).String(), "not_logged", r.silent)
	r.warned, r.silent = now, 0
}

// newLease returns a lease on partition p. The lease receives its inputs over the connection nc.
func (m *Exclusive) newLease(ctx context.Context, p int, nc *nats.Conn, device *sharedDevice, log *slog.Logger) (*lease, error) {
	t := &m.o.Topology
	name := topology.PartitionConsumer(t.Consumer, p)
	consumer, err := m.o.JS.Consumer(ctx, t.Stream, name)
	if err != nil {
		return nil, err
	}
	size, server := m.o.Size(consumer), newConsumerServer(&m.o, nc, consumer, log)
	server.partition = p
	server.request = pull.Request{
		API: t.API, Stream: t.Stream, Consumer: name, Group: topology.PriorityGroup,
		Messages: size.Messages, Expires: pullFor, Heartbeat: pullFor / 2, Idle: topology.PinnedFor,
	}
	openCommits := func(ctx context.Context, of results.Partition) (leaseCommits, error) {
		of.Number, of.Owner = p, nuid.Next()
		c, err := results.OpenCommits(ctx, m.o.Results, of)
		if err == nil && m.states != nil {
			err = m.states.restore(ctx, of, c)
		}
		if c == nil || err != nil {
			return nil, err
		}
		return c, nil
	}
	return newLease(leaseState{
		inputs: inputs{o: &m.o, server: server, store: m.o.Results, busy: &m.watch.busy[p], log: log}, id: m.id, device: newPipelineDevice(device), pipe: device.pipe,
		window: inflight.NewOrderedWindow(&device.submitted), owner: &partitionOwner{m.watch, m.members, p}, openCommits: openCommits,
	}), nil
}
