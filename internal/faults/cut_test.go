package faults

import (
	"testing"

	"millrace/internal/ingest/natstest"
)

// Each of these tests has two workers, and the first is behind a proxy. The second worker receives the first worker's
// inputs only if the first worker was cut off for longer than AckWait.

// TestConnectionCut cuts off a worker for longer than AckWait, under load.
func TestConnectionCut(t *testing.T) {
	eachMode(t, func(r *rig) {
		cuts := times(10, 1)
		p, other := r.workBehindProxy()
		f := r.feed(endless, r.inputs())
		for range cuts {
			r.awaitResults(1 + r.rng.IntN(2000))
			back := func() { p.Refuse(false) }
			r.untilTakenOver(other, func() { p.Refuse(true) }, back)
			back()
			r.until("the worker is back", r.workers[0].isReady)
		}
		f.finish()
		r.close("connection cut for longer than AckWait", cuts)
	})
}

// TestOneWayCut delays one direction of a worker's connection for longer than AckWait. Then it either delivers all
// delayed messages late, or cuts the connection so that they are lost.
func TestOneWayCut(t *testing.T) {
	eachMode(t, func(r *rig) {
		cuts := times(10, 2)
		p, other := r.workBehindProxy()
		f := r.feed(endless, r.inputs())
		for i := range cuts {
			r.awaitResults(1 + r.rng.IntN(2000))
			way := &p.Up
			if i%2 == 1 {
				way = &p.Down
			}
			r.untilTakenOver(other, way.Close, way.Open)
			if r.rng.IntN(2) == 0 {
				p.Cut()
			}
			way.Open()
			r.until("the worker is back", r.workers[0].isReady)
		}
		f.finish()
		r.close("connection cut one way", cuts)
	})
}

// workBehindProxy starts the two workers. Their operators are slow, so the workers nearly always hold inputs.
func (r *rig) workBehindProxy() (p *natstest.Proxy, other *worker) {
	r.t.Helper()
	r.operators("crc32c,minhash?k=24&hashes=128")
	r.serve(1)
	p = r.proxy()
	r.join(r.startWorkerAt(p.URL()))
	r.work(1)
	return p, r.workers[1]
}

// takenOver returns a counter that increases when a worker receives inputs that another worker held.
func (r *rig) takenOver(w *worker) float64 {
	if r.mode() == "exclusive" {
		return float64(w.sayings("the last owner of the partition did not end of itself"))
	}
	return w.redelivered()
}

// awaitWork returns once a worker has stored another result and, with exclusive delivery, owns a partition. A worker
// that reconnects first stores the results that it had in flight. Until then, it still reports its old partitions,
// although other workers own them by now.
func (r *rig) awaitWork(w *worker) {
	r.t.Helper()
	before, _ := w.metric("millrace_messages_total") // 0 if the worker doesn't answer
	r.until("the worker to be cut off has work", func() bool {
		stored, err := w.metric("millrace_messages_total")
		return err == nil && stored > before && (r.mode() != "exclusive" || r.hasPartition(w))
	})
}

const defaultPartitions = 8

// hasPartition reports whether w owns a partition, and all workers together report at most defaultPartitions.
func (r *rig) hasPartition(w *worker) bool {
	var all float64
	for _, each := range r.workers {
		owned, err := each.metric("millrace_partitions_owned")
		if err != nil || each == w && owned == 0 {
			return false
		}
		all += owned
	}
	return all <= defaultPartitions
}

// cutAttempts is the maximum number of attempts to cut off a worker while it holds inputs.
const cutAttempts = 10

// untilTakenOver cuts off one worker. It returns when the other worker has received the inputs that the first held. If
// the first held no inputs at that moment, untilTakenOver reconnects it and cuts it off again.
func (r *rig) untilTakenOver(other *worker, cut, back func()) {
	r.t.Helper()
	for range cutAttempts {
		r.awaitWork(r.workers[0])
		before := r.takenOver(other)
		cut()
		if r.comesWithin(5*ackWait, func() bool { return r.takenOver(other) > before }) {
			return
		}
		back()
		r.awaitResults(1)
	}
	r.t.Fatalf("in %d cuts the worker never held an input", cutAttempts)
}
