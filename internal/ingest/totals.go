package ingest

import (
	"sync"
	"time"

	"millrace/internal/ingest/trim"
)

// totals adds up the figures of the shards, and passes the sums to the worker's observer.
type totals struct {
	observer Observer

	mu     sync.Mutex
	shards map[*shardObserver]bool
}

// ShardStatus is the state of one shard at one moment.
type ShardStatus struct {
	Stream         string    // the input stream
	Consumer       string    // its consumer; with exclusive delivery, that of partition 0
	Created        time.Time // time when the consumer was created
	Pending        uint64    // messages that the consumers have not delivered yet
	Unacknowledged uint64    // messages that are delivered to any worker and not acknowledged
	Stalled        int       // consumers that deliver nothing although they have messages
}

// Lag returns the number of messages that are not acknowledged yet.
func (s ShardStatus) Lag() uint64 { return s.Pending + s.Unacknowledged }

// shardObserver passes the events of one shard to the worker's observer. The observer gets the figures of all shards together.
type shardObserver struct {
	Observer
	all   *totals
	shard ShardStatus // without figures

	pending, unacknowledged uint64 // guarded by all.mu, like the following fields
	stalled                 int
	trimmed                 trim.State
}

func (t *totals) add(s ShardStatus) *shardObserver {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &shardObserver{Observer: t.observer, all: t, shard: s}
	t.shards[o] = true
	return o
}

// remove removes the figures of a shard from the sums.
func (t *totals) remove(o *shardObserver) {
	t.mu.Lock()
	delete(t.shards, o)
	t.mu.Unlock()
	o.Pending(0)
	o.Unacknowledged(0)
	o.Stalled(0)
	o.Trim(0, trim.State{})
}

// count returns the number of shards.
func (t *totals) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.shards)
}

// sum calls set, and passes the sum of a figure over all shards to report.
func (t *totals) sum(set func(), of func(o *shardObserver) uint64, report func(sum uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set()
	sum := uint64(0)
	for o := range t.shards {
		sum += of(o)
	}
	report(sum)
}

// Pending implements Observer.
func (o *shardObserver) Pending(messages uint64) {
	o.all.sum(func() { o.pending = messages }, func(o *shardObserver) uint64 { return o.pending }, o.Observer.Pending)
}

// Unacknowledged implements Observer.
func (o *shardObserver) Unacknowledged(messages uint64) {
	o.all.sum(func() { o.unacknowledged = messages }, func(o *shardObserver) uint64 { return o.unacknowledged }, o.Observer.Unacknowledged)
}

// Stalled implements Observer.
func (o *shardObserver) Stalled(consumers int) {
	o.all.sum(func() { o.stalled = consumers }, func(o *shardObserver) uint64 { return uint64(o.stalled) }, func(sum uint64) { o.Observer.Stalled(int(sum)) })
}

// Trim implements Observer. The worker's observer gets the state of the stream that needs most attention: one that can't be trimmed,
// otherwise the one with the most inputs that a consumer still needs.
func (o *shardObserver) Trim(removed uint64, s trim.State) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.trimmed = s
	for other := range o.all.shards {
		if worse(other.trimmed, s) {
			s = other.trimmed
		}
	}
	o.Observer.Trim(removed, s)
}

// worse reports whether a needs more attention than b.
func worse(a, b trim.State) bool {
	held := func(s trim.State) bool { return s.Held != trim.None && s.Held != trim.NotTrimmed }
	if held(a) != held(b) {
		return held(a)
	}
	return a.Behind() > b.Behind()
}
