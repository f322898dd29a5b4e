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

// custody finds partitions whose assigned owner doesn't take them. A client with permission to publish on the members' subject can
// pose as a member, and gets a share assigned. An announcement proves nothing, but the server knows whether a partition has an
// owner: a consumer that has messages and is pinned to no client has none. After a while any worker takes such a partition,
// whatever is assigned, and the server chooses among the workers that do.
//
// A worker keeps such a partition for a while. It does the same with one that it gave away, in which messages waited and that
// nobody took, when it gets it back. It keeps the partition longer each time. So a partition that is assigned to ghosts again and
// again is seldom without an owner, and without ghosts a worker that joins gets its share at once.
type custody struct {
	members *members.Members
	log     *slog.Logger

	mu         sync.Mutex
	partitions []charge
}

// charge is the state of a partition that custody tracks.
type charge struct {
	orphan  time.Time     // since when it has had messages and no owner; zero if it has none of the first or one of the second
	given   bool          // this worker gave it away, and no other has taken it since
	refused bool          // given, and messages were seen waiting in it
	hold    time.Duration // how long this worker kept it the last time
	adopted bool          // this worker wants it whatever is assigned
	until   time.Time     // until then
}

const (
	// orphanAfter is how long a partition has no owner before any worker takes it. The next owner of a dead worker's partition needs
	// less time to begin.
	orphanAfter = 5 * time.Second

	// leastHold and mostHold bound how long a worker keeps a partition that its assigned owner didn't take.
	leastHold = 30 * time.Second
	mostHold  = 10 * time.Minute

	// custodyEvery is how often the server is asked about each partition that may have no owner, for all of them together at most
	// 20 times per second.
	custodyEvery = 500 * time.Millisecond

	// leastPause between two questions keeps many partitions from asking the server more than it has time for: 20 per second.
	leastPause = 50 * time.Millisecond
)

func newCustody(m *members.Members, partitions int, log *slog.Logger) *custody {
	return &custody{members: m, log: log, partitions: make([]charge, partitions)}
}

// saw enters the state of a partition's consumer.
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

// keep has this worker take or keep a partition, longer than the last time. c.mu is held.
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

// gave notes that this worker no longer holds a partition. It returns false, and notes nothing, if the members' agreement still
// assigns the partition to this worker, which is then only cut off.
func (c *custody) gave(p int) bool {
	if _, assigned := c.members.Standing(p); assigned {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions[p].given, c.partitions[p].refused = true, false
	return true
}

// began notes that this worker has a partition.
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

// open returns the partitions to check soon: those that may have no owner, and those that this worker adopted and doesn't have
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

// watch checks open partitions until ctx is done. look asks the server about one.
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
