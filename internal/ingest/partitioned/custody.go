package partitioned

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/partitioned/members"
	"millrace/internal/ingest/retry"
)

// custody finds partitions that their assigned owner doesn't take. A client with permission to publish on the members' subject
// can pose as a member, and gets partitions assigned. An announcement proves nothing, but the server knows whether a partition
// has an owner: a consumer that has messages and no pinned client has none. After a while any worker takes such a partition,
// regardless of assignment, and the server chooses one of them.
//
// The worker keeps such a partition for a while. It also keeps a partition that it gave away and gets back, if messages waited in
// it and no worker took it. It keeps the partition longer each time. So a partition that is repeatedly assigned to fake members
// is seldom without an owner. Without fake members, a worker that joins gets its share at once.
type custody struct {
	members *members.Members
	log     *slog.Logger

	mu         sync.Mutex
	partitions []charge
}

// charge is the state of a partition that custody tracks.
type charge struct {
	orphan  time.Time     // since when the partition has had messages and no owner; zero if it has no messages or has an owner
	given   bool          // whether this worker gave it away and no other has taken it since
	refused bool          // whether messages were waiting in it after it was given away
	hold    time.Duration // how long this worker kept it the last time
	adopted bool          // whether this worker wants it regardless of assignment
	until   time.Time     // when the adoption ends
}

const (
	// orphanAfter is how long a partition has no owner before any worker takes it. The next owner of a dead worker's partition needs
	// less time to begin.
	orphanAfter = 5 * time.Second

	// leastHold and mostHold bound how long a worker keeps a partition that its assigned owner didn't take.
	leastHold = 30 * time.Second
	mostHold  = 10 * time.Minute

	// custodyEvery is the interval at which the server is queried about each partition that may have no owner. All queries
	// together are limited to 20 per second.
	custodyEvery = 500 * time.Millisecond

	// leastPause is the minimum time between two queries, so that many partitions don't overload the server: 20 per second.
	leastPause = 50 * time.Millisecond
)

func newCustody(m *members.Members, partitions int, log *slog.Logger) *custody {
	return &custody{members: m, log: log, partitions: make([]charge, partitions)}
}

// saw records the state of a partition's consumer.
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

// keep makes this worker take or keep a partition, longer than the last time. c.mu is held.
func (c *custody) keep(p int, now time.Time) {
	it := &c.partitions[p]
	it.hold = min(max(2*it.hold, leastHold), mostHold)
	it.until, it.orphan = now.Add(it.hold), time.Time{}
	c.adopt(p, true)
}

func (c *custody) adopt(p int, take bool) {
	c.partitions[p].adopted = take
	c.members.Adopt(p, take)
}

// gave records that this worker no longer owns a partition. If the members still assign the partition to this worker, it was only
// disconnected. gave then records nothing and returns false.
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

// open returns the partitions to check soon: those that may have no owner, and those that this worker adopted but doesn't own
// yet.
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

// watch checks open partitions until ctx is done. look queries the server about one.
func (c *custody) watch(ctx context.Context, look func(p int)) {
	for retry.Sleep(ctx, custodyEvery) {
		for _, p := range c.open() {
			look(p)
			if !retry.Sleep(ctx, leastPause) {
				return
			}
		}
	}
}
