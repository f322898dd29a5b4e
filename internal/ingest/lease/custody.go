package lease

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/lease/members"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
)

// custody adopts partitions that their assigned owner doesn't take. Any client that may publish on the members' subject
// can pose as a member, and Assign then gives it partitions. A partition has no owner if its consumer has messages but
// no pinned client. After orphanAfter, every worker tries to take such a partition, and the server pins one of them.
//
// The worker keeps an adopted partition for some time. It does the same with a partition that it gave away and got back,
// if messages waited there without an owner. The time doubles with each repetition, so a partition that is repeatedly
// assigned to fake members seldom lacks an owner. Without fake members, a worker that joins gets its share at once.
type custody struct {
	members *members.Members
	log     *slog.Logger

	mu         sync.Mutex
	partitions []charge
}

// charge is the state of a partition that custody tracks.
type charge struct {
	orphan  time.Time     // time since which the partition has messages but no owner; zero otherwise
	given   bool          // whether this worker gave the partition away and no worker has taken it since
	refused bool          // whether messages waited without an owner after the partition was given away
	hold    time.Duration // last duration for which this worker kept the partition
	adopted bool          // whether this worker tries to own the partition regardless of assignment
	until   time.Time     // time when the adoption ends
}

const (
	// orphanAfter is the time without an owner after which any worker takes a partition. The assigned successor of a
	// dead worker begins sooner.
	orphanAfter = 5 * time.Second

	// minHold and maxHold bound the time for which a worker keeps an adopted partition.
	minHold = 30 * time.Second
	maxHold = 10 * time.Minute

	// custodyEvery is the interval at which the server is queried about each partition that may have no owner.
	custodyEvery = 500 * time.Millisecond

	// minPause is the minimum time between two queries. It limits the load on the server to 20 queries per second.
	minPause = 50 * time.Millisecond
)

func newCustody(m *members.Members, partitions int, log *slog.Logger) *custody {
	return &custody{members: m, log: log, partitions: make([]charge, partitions)}
}

// saw records the state of a partition's consumer, and starts or ends an adoption.
func (c *custody) saw(p int, info *jetstream.ConsumerInfo, now time.Time) {
	owned, assigned := c.members.Standing(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	it := &c.partitions[p]
	pinned, idle := pinOf(info) != "", info.NumPending == 0 && info.NumAckPending == 0
	it.refused = it.given && (it.refused || !owned && !pinned && !idle)
	switch {
	case owned:
		it.orphan = time.Time{}
		if it.adopted && now.After(it.until) {
			c.adopt(p, false)
		}
	case pinned:
		it.orphan, it.given, it.refused, it.hold = time.Time{}, false, false, 0
		if it.adopted {
			c.adopt(p, false)
		}
	case assigned || it.adopted || idle:
		it.orphan = time.Time{}
	case it.orphan.IsZero():
		it.orphan = now
	case now.Sub(it.orphan) >= orphanAfter:
		c.keep(p, now)
		c.log.Warn("a partition has messages and no owner; taking it, though the members' agreement gives it to another. If this "+
			"comes again, somebody else may publish on the members' subject: see docs/security.md",
			"partition", p, "pending", info.NumPending, "unacknowledged", info.NumAckPending, "for", it.hold.String())
	}
}

// keep makes this worker take or keep a partition, for twice the last duration. The caller holds c.mu.
func (c *custody) keep(p int, now time.Time) {
	it := &c.partitions[p]
	it.hold = min(max(2*it.hold, minHold), maxHold)
	it.until, it.orphan = now.Add(it.hold), time.Time{}
	c.adopt(p, true)
}

func (c *custody) adopt(p int, take bool) {
	c.partitions[p].adopted = take
	c.members.Adopt(p, take)
}

// gave records that this worker no longer owns partition p. If p is still assigned to this worker, the worker was only
// disconnected. In that case, gave records nothing and returns false.
func (c *custody) gave(p int) bool {
	if _, assigned := c.members.Standing(p); assigned {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions[p].given, c.partitions[p].refused = true, false
	return true
}

// began records that this worker owns a partition.
func (c *custody) began(p int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := &c.partitions[p]
	refused := it.refused
	it.given, it.refused = false, false
	if refused {
		c.keep(p, now)
	}
}

// open returns the partitions that this worker doesn't own but must check soon. Each was given away and not taken, has
// messages but no owner, or is adopted by this worker.
func (c *custody) open() (open []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, it := range c.partitions {
		owned, _ := c.members.Standing(p)
		if !owned && (!it.orphan.IsZero() || it.given || it.adopted) {
			open = append(open, p)
		}
	}
	return open
}

// watch calls look for each open partition every custodyEvery, until ctx is done.
func (c *custody) watch(ctx context.Context, look func(p int)) {
	for retry.Sleep(ctx, custodyEvery) {
		for _, p := range c.open() {
			look(p)
			if !retry.Sleep(ctx, minPause) {
				return
			}
		}
	}
}

// watch queries the server about the consumers of all partitions, including partitions of other workers. With shared delivery, it queries
// about the only consumer, as if that were a partition.
type watch struct {
	o       *Options
	info    func(ctx context.Context, p int) (*jetstream.ConsumerInfo, error)
	backlog *backlog
	custody *custody      // nil with shared delivery
	busy    []atomic.Bool // by partition; see inputs
}

// newWatch returns a watch without custody.
func newWatch(o *Options, info func(ctx context.Context, p int) (*jetstream.ConsumerInfo, error)) *watch {
	n := 1
	if o.Topology.Exclusive {
		n = o.Topology.Partitions
	}
	return &watch{o: o, info: info, backlog: newBacklog(o.Observer, n), busy: make([]atomic.Bool, n)}
}

// run queries the partitions in turn until ctx is done. It queries up to a hundred partitions within stall.Interval.
func (w *watch) run(ctx context.Context) {
	pause := max(stall.Interval/time.Duration(len(w.busy)), minPause)
	for p := 0; ; p = (p + 1) % len(w.busy) {
		w.check(ctx, p)
		if !retry.Sleep(ctx, pause) {
			return
		}
	}
}

// check queries the consumer of partition p, and passes its state to the backlog, the stall detector and custody.
func (w *watch) check(ctx context.Context, p int) {
	asked, done := context.WithTimeout(ctx, stall.Interval)
	defer done()
	info, err := w.info(asked, p)
	if err != nil {
		w.o.Stalls.MarkUnknown(p, time.Now())
		return
	}
	w.backlog.update(p, info.NumPending)
	w.backlog.delivered(p, info.NumAckPending)
	excused := w.busy[p].Load()
	if w.custody != nil {
		owned, _ := w.custody.members.Standing(p)
		excused = excused || !owned && pinOf(info) != "" // if another worker is pinned, that worker reports a stall
		w.custody.saw(p, info, time.Now())
	}
	w.o.Stalls.Saw(p, info, excused, time.Now())
}

// partitionOwner implements leaseOwner for one partition.
type partitionOwner struct {
	*watch
	members   *members.Members
	partition int
}

func (p *partitionOwner) began() {
	p.members.Has(p.partition, true)
	p.custody.began(p.partition, time.Now())
}

func (p *partitionOwner) ended() { p.members.Has(p.partition, false) }

// backlog counts the undelivered and the unacknowledged messages of all partitions. Every worker reports the totals over all workers.
type backlog struct {
	observer Observer

	mu             sync.Mutex
	pending        counts
	unacknowledged counts
}

// counts contains one number per partition (0 if unknown) and their total.
type counts struct {
	of    []uint64
	total uint64
}

func (c *counts) set(partition int, n uint64) uint64 {
	c.total += n - c.of[partition]
	c.of[partition] = n
	return c.total
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: counts{of: make([]uint64, partitions)}, unacknowledged: counts{of: make([]uint64, partitions)}}
}

// update sets a partition's number of undelivered messages, and reports the total to the observer.
func (b *backlog) update(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Pending(b.pending.set(partition, pending))
}

// delivered sets a partition's number of delivered but unacknowledged messages, and reports the total to the observer.
func (b *backlog) delivered(partition int, unacknowledged int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Unacknowledged(b.unacknowledged.set(partition, uint64(max(unacknowledged, 0))))
}
