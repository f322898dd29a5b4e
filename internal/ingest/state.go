package ingest

import (
	"context"
	"fmt"
	"time"
)

// Stage is where a worker is in its life.
type Stage int32

// The stages.
const (
	Starting Stage = iota
	Running
	Draining
	Stopped
)

func (s Stage) String() string { return [...]string{"starting", "running", "draining", "stopped"}[s] }

// Status is a worker's state at one moment. Reading it asks neither the server nor a device.
type Status struct {
	Stage      Stage
	Connected  bool
	InHand     int           // batches being filled, computed or settled
	Partitions int           // that this worker has to itself, with exclusive delivery
	HeldBack   int           // payloads that fail alone while no other has come right since; they come again later
	Progress   time.Time     // when payloads last came right: a batch was computed, or results were stored
	AckWait    time.Duration // the consumer's
}

// Status reads the worker's state.
func (w *Worker) Status() Status {
	return Status{
		Partitions: w.ownedPartitions(), Stage: Stage(w.stage.Load()), Connected: w.conns.Connected(), HeldBack: w.judge.HeldBack(),
		InHand: w.pool.InFlight(), Progress: time.Unix(0, w.moved.Load()), AckWait: w.ackWait,
	}
}

// Stalled is why the worker is not to count as ready although it runs: a consumer that has messages has delivered none for two
// minutes, though the worker asks for them. It is nil where there is nothing of the sort. It asks neither the server nor a
// device.
func (w *Worker) Stalled() error { return w.stalls.err(time.Now()) }

// progressed notes that payloads came right: a device has computed a batch of them, or the server has stored their results.
// Nothing else is progress, however busy it keeps the worker: no probe, no batch that fails, no dead letter, nothing that is
// given back. So a worker with batches in hand none of which comes right is not healthy. Payloads given up as they are
// received (too_large) are never in hand, so a stream of nothing else does not harm it.
func (w *Worker) progressed() { w.moved.Store(time.Now().UnixNano()) }

// lastFlush is how long sending the last acknowledgements may take when the time for draining is over.
const lastFlush = time.Second

// flush makes sure that the server has every acknowledgement, as long as hard lasts and lastFlush longer.
func (w *Worker) flush(hard context.Context) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.opts.DrainTimeout+lastFlush)
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(lastFlush, cancel) })()
	if err := w.conns.Flush(ctx); err != nil {
		return fmt.Errorf("the last acknowledgements may not have reached the server; what they were for is delivered again: %w", err)
	}
	return nil
}
