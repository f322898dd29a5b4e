package ingest

import (
	"time"

	"millrace/internal/ingest/inflight"
)

// Status is a worker's state at one moment.
type Status struct {
	Stage      Stage
	Connected  bool
	InHand     int           // batches being filled, computed or settled
	Partitions int           // that this worker has to itself, with exclusive delivery
	HeldBack   int           // payloads that fail alone while no other has come right since; they come again later
	Progress   time.Time     // when payloads last came right: a batch was computed, or results were stored
	AckWait    time.Duration // the consumer's
}

// Status returns the worker's state. It asks neither the server nor a device.
func (w *Worker) Status() Status {
	return Status{
		Partitions: w.mode.Owned(), Stage: Stage(w.life.stage.Load()), Connected: w.conns.Connected(), HeldBack: w.judge.HeldBack(),
		InHand: w.pool.InFlight(), Progress: time.Unix(0, w.life.progress.Load()), AckWait: w.ackWait,
	}
}

// Stalled returns why the worker must not count as ready although it runs: a consumer that has messages has delivered none for two
// minutes, though the worker asks for them. It returns nil if there is no such consumer. It asks neither the server nor a device.
func (w *Worker) Stalled() error { return w.stalls.Err(time.Now()) }

// Memory returns how much memory deliveries in flight take.
func (w *Worker) Memory() inflight.Memory { return w.pool.Memory() }
