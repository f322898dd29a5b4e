package ingest

import (
	"time"

	"millrace/internal/ingest/lease"
	"millrace/internal/memory"
)

// Status is a worker's state at one moment.
type Status struct {
	Connected bool // whether every connection is up
	InHand    int  // number of batches being filled, computed or settled
	// Partitions is the number of partitions that this worker owns with exclusive delivery. Each is assigned to the worker, and
	// the worker has received an input from it.
	Partitions int
	HeldBack   int           // number of payloads that failed alone and were given back while no other payload has succeeded
	Progress   time.Time     // time of the last progress: a batch was computed, or results were stored
	AckWait    time.Duration // the consumer's AckWait
}

// Status returns the worker's state. It makes no request to the server or a device.
func (w *Worker) Status() Status {
	return Status{
		Partitions: w.mode.Owned(), Connected: w.conns.Connected(), HeldBack: w.judge.HeldBack(),
		InHand: w.pool.InFlight(), Progress: w.progress.Last(), AckWait: w.ackWait,
	}
}

// StateFigures are figures of a worker's states.
type StateFigures = lease.StateFigures

// States returns the figures of the states of a stateful operator. It makes no request to the server or a device.
func (w *Worker) States() StateFigures { return w.mode.States() }

// Shares calls share for each worker that has announced itself with exclusive delivery, starting with this worker. name and owns
// are as announced, so any client may have chosen them. self is true for this worker. Shares makes no request to the server.
func (w *Worker) Shares(share func(name string, self bool, owns []int)) {
	for _, s := range w.mode.Shares() {
		share(s.Name, s.Self, s.Owns)
	}
}

// Stalled returns an error if a consumer with messages has delivered none for two minutes although the worker requests them. The
// worker then isn't ready. Stalled makes no request to the server or a device.
func (w *Worker) Stalled() error { return w.stalls.Err(time.Now()) }

// Memory returns the memory that deliveries in flight use, and its limit.
func (w *Worker) Memory() memory.Usage { return w.pool.Memory() }
