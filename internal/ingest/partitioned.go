package ingest

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned"
)

// backlogEvery is how often the server is asked for the consumer's backlog. Every message tells it too, but none comes after a
// purge, or while results cannot be stored.
const backlogEvery = 5 * time.Second

// runExclusive is Run for exclusive delivery.
func (w *Worker) runExclusive(intake, drainCtx context.Context, stop context.CancelCauseFunc) error {
	defer stop(nil)
	m, err := partitioned.New(w.partitionedSettings())
	if err != nil {
		return err
	}
	w.exclusive.Store(m)
	m.Run(intake, drainCtx, stop)
	w.pool.Abandon(func(*inflight.Batch) {}) // batches that were on a device when the time for draining was over
	return nil
}

func (w *Worker) partitionedSettings() partitioned.Settings {
	return partitioned.Settings{
		Topology: w.opts.Topology, Pipes: w.pipes, Conns: w.conns, JS: w.js, Size: w.pullSize,
		Pool: w.pool, Results: w.results, Judge: w.judge, Linger: w.opts.Linger, Confirm: w.opts.ConfirmAcks,
		Log: w.log, Observer: w.observer, Batches: w.opts.Batches, Stalls: partitionStalls{w.stalls},
	}
}

// ownedPartitions returns how many partitions the worker has; 0 with shared delivery.
func (w *Worker) ownedPartitions() int {
	m := w.exclusive.Load()
	if m == nil {
		return 0
	}
	return m.Owned()
}

// partitionStalls is the partitioned.StallWatch of a worker.
type partitionStalls struct{ *stalls }

// Saw implements partitioned.StallWatch.
func (s partitionStalls) Saw(partition int, info *jetstream.ConsumerInfo, excused bool, now time.Time) {
	s.saw(partition, info, excused, now)
}

// Unknown implements partitioned.StallWatch.
func (s partitionStalls) Unknown(partition int, now time.Time) { s.unknown(partition, now) }
