package ingest

import (
	"cmp"
	"slices"
	"time"

	"millrace/internal/ingest/lease"
	"millrace/internal/memory"
)

// Status is a worker's state at one moment.
type Status struct {
	Connected bool // whether every connection is up
	InHand    int  // number of batches being filled, computed or settled
	// Partitions is the number of partitions of all shards that this worker owns with exclusive delivery. Each is assigned to the worker, and
	// the worker has received an input from it.
	Partitions int
	HeldBack   int           // number of payloads that failed alone and were given back while no other payload has succeeded
	Progress   time.Time     // time of the last progress: a batch was computed, or results were stored
	AckWait    time.Duration // the shortest AckWait of the consumers
}

// Status returns the worker's state. It makes no request to the server or a device.
func (w *Worker) Status() Status {
	owned := 0
	for _, s := range w.current() {
		owned += s.mode.Owned()
	}
	return Status{
		Partitions: owned, Connected: w.conns.Connected(), HeldBack: w.judge.HeldBack(),
		InHand: w.pool.InFlight(), Progress: w.progress.Last(), AckWait: w.minAckWait(),
	}
}

// StateFigures are figures of a worker's states.
type StateFigures = lease.StateFigures

// States returns the figures of the states of a stateful operator. It makes no request to the server or a device. A worker with such an
// operator has one shard.
func (w *Worker) States() (f StateFigures) {
	for _, s := range w.current() {
		f = s.mode.States()
	}
	return f
}

// Shares calls share for each worker that has announced itself with exclusive delivery, starting with this worker, for each shard. name
// and owns are as announced, so any client may have chosen them. self is true for this worker. Shares makes no request to the server.
func (w *Worker) Shares(share func(stream, name string, self bool, owns []int)) {
	for _, s := range w.current() {
		for _, of := range s.mode.Shares() {
			share(s.Stream, of.Name, of.Self, of.Owns)
		}
	}
}

// Stalled returns an error if a consumer with messages has delivered none for two minutes although the worker requests them. The
// worker then isn't ready. Stalled makes no request to the server or a device.
func (w *Worker) Stalled() error {
	for _, s := range w.current() {
		if err := s.stalls.Err(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// Memory returns the memory that deliveries in flight use, and its limit.
func (w *Worker) Memory() memory.Usage { return w.pool.Memory() }

// Shards returns the state of each shard, those with the most lag first.
func (w *Worker) Shards() []ShardStatus {
	w.totals.mu.Lock()
	all := make([]ShardStatus, 0, len(w.totals.shards))
	for o := range w.totals.shards {
		s := o.shard
		s.Pending, s.Unacknowledged, s.Stalled = o.pending, o.unacknowledged, o.stalled
		all = append(all, s)
	}
	w.totals.mu.Unlock()
	slices.SortFunc(all, func(a, b ShardStatus) int {
		return cmp.Or(cmp.Compare(b.Lag(), a.Lag()), cmp.Compare(a.Stream, b.Stream))
	})
	return all
}

// minAckWait returns the shortest AckWait of the shards, or a minute without a shard.
func (w *Worker) minAckWait() time.Duration {
	shortest := time.Minute
	for i, s := range w.current() {
		if i == 0 || s.ackWait < shortest {
			shortest = s.ackWait
		}
	}
	return shortest
}
