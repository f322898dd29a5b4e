package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/store"
)

// This file has the lease model's actions on workers. They assign the partition, withdraw it, and inject faults.

// elect gives the partition to a worker, and usually withdraws it from all others.
func (m *leaseModel) elect() {
	if !m.shared && m.random.IntN(4) > 0 && slices.ContainsFunc(m.workers, func(w *leaseWorker) bool { return w.wants }) {
		return
	}
	w := m.workers[m.random.IntN(len(m.workers))]
	if w.wants {
		m.take(w)
		return
	}
	if !m.shared && m.random.IntN(3) > 0 {
		for _, o := range m.workers {
			m.take(o)
		}
	}
	m.give(w)
}

// give notifies a worker that it should own the partition. take notifies it that it should not.
func (m *leaseModel) give(w *leaseWorker) {
	if w.wants || len(w.start) > 0 || w.dead {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	w.wants, w.stop = true, stop
	m.note("%s is to have the partition", w.id)
	w.start <- ctx
}

func (m *leaseModel) take(w *leaseWorker) {
	if w.wants {
		m.note("%s is not to have the partition any more", w.id)
	}
	w.wants = false
	w.stop()
}

func (m *leaseModel) mishap() {
	w := m.workers[m.random.IntN(len(m.workers))]
	kind := m.random.IntN(24)
	if m.shared && kind == 8 {
		return // there is no pin
	}
	if m.resetting && m.random.IntN(3) == 0 {
		kind = 9
	}
	switch kind {
	case 0:
		m.did("crashed")
		m.note("%s crashes", w.id)
		m.crash(w)
	case 1, 2:
		m.did("frozen")
		m.note("%s freezes", w.id)
		w.frozenUntil = m.steps + m.random.IntN([]int{150, 150, 600}[m.random.IntN(3)])
	case 3, 4, 5:
		m.did("cut")
		m.note("%s is cut off", w.id)
		for _, p := range w.pulls {
			p.cut(m.random.IntN(len(p.wire) + 1))
			if m.random.IntN(4) == 0 && len(p.broken) == 0 {
				p.broken <- pull.ErrSilent
			}
		}
	case 6:
		m.did("device lost")
		m.note("%s loses its device", w.id)
		w.lost = device.ErrKernelFault
	case 7:
		m.did("terminated")
		m.note("%s is terminated", w.id)
		m.take(w)
		w.life()
		if m.random.IntN(2) == 0 {
			w.kill() // the drain has timed out
		}
	case 8:
		if m.server.pin != "" {
			m.did("pin dropped")
			m.note("the server drops the pin")
			m.server.pin = ""
		}
	case 9:
		if m.random.IntN(2) == 0 {
			if m.shared || m.random.IntN(3) > 0 && !m.resetting {
				m.server.restart()
			} else {
				m.did("reset by an administrator")
				before := m.random.Uint64N(2) * m.random.Uint64N(m.server.floorSequence+1)
				m.server.reset(m.server.floorSequence + 1 - before)
			}
		}
	case 10:
		m.changeLeader()
	case 11, 12:
		c := &m.server.chains[m.random.IntN(2)]
		m.note("the stream of %s has no room", c.name)
		c.fullUntil = m.steps + m.random.IntN(600)
	default:
		m.replace()
	}
}

func (m *leaseModel) crash(w *leaseWorker) {
	m.end(w)
	m.newWorker(w.slot)
}

// changeLeader gives the streams of results and dead letters a new leader. Messages in transit to the previous leader
// are stored or lost without an answer, or they reach the new leader.
func (m *leaseModel) changeLeader() {
	m.did("leader changed")
	m.note("the streams get another leader")
	for i := range m.server.chains {
		m.server.chains[i].open = nil
	}
	m.sortCalls()
	m.calls = slices.DeleteFunc(m.calls, func(c *modelCall) bool {
		fate := m.random.IntN(3)
		if !strings.HasPrefix(c.what, commitCall) && !strings.HasPrefix(c.what, publishCall) || fate == 0 {
			return false
		}
		m.did("request hit by a change of the leader")
		m.note("%s: %s, which is stored: %v", c.w.id, c.what, fate == 1)
		if fate == 1 {
			_ = c.apply()
		}
		return true
	})
}

// interrupt disturbs a worker during one of its batches. The worker crashes, freezes and loses its pin, or only gets
// no answer.
func (m *leaseModel) interrupt(w *leaseWorker) {
	switch m.random.IntN(3) {
	case 0:
		m.did("crashed during a batch")
		m.crash(w)
	case 1:
		m.did("frozen during a batch")
		w.frozenUntil = m.steps + m.random.IntN(400)
		m.server.pin = ""
	}
}

// replaceLost replaces the workers whose devices the judge has lost, like Kubernetes.
func (m *leaseModel) replaceLost() {
	for slot, w := range m.workers {
		if wanted := w.wants; w.over && w.lost != nil {
			m.crash(w)
			if wanted {
				m.give(m.workers[slot])
			}
		}
	}
}

func (m *leaseModel) replace() {
	for _, w := range m.workers {
		if w.over {
			m.crash(w)
		}
	}
}

// end ends a worker's process. The caller holds m.mu, as for all actions of the scheduler. Some messages that the
// worker has sent may arrive later.
func (m *leaseModel) end(w *leaseWorker) {
	w.dead = true
	for _, c := range m.calls {
		c.gone = c.gone || c.w == w
	}
	for _, p := range w.pulls {
		p.open, p.leaving = false, true
	}
	m.take(w)
	w.life()
	w.kill()
}

// This file has the model's records of its leases, and the invariants that it checks with them.

// count adds n to the number of active leases.
func (m *leaseModel) count(n int) {
	m.mu.Lock()
	m.active += n
	m.mu.Unlock()
}

// isIdle reports whether no lease is active.
func (m *leaseModel) isIdle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active == 0
}

// held records that a lease has taken an input.
func (m *leaseModel) held(e *modelLease, d *modelMessage) {
	m.notes.Lock()
	calm, before := m.calm, m.takes[d.sequence]
	m.takes[d.sequence] = append(before, e)
	m.notes.Unlock()
	switch {
	case slices.Contains(before, e):
		m.violate("lease %d of %s takes input %d twice", e.n, e.w.id, d.sequence)
	case d.turn != 0 && d.turn != e.l.partition.turn:
		m.violate("lease %d of %s takes input %d of another turn", e.n, e.w.id, d.sequence)
	}
	if !calm {
		return
	}
	m.notes.Lock()
	defer m.notes.Unlock()
	for other, sequence := range m.clean {
		if other != e && d.sequence <= sequence && m.broken == "" {
			m.broken = fmt.Sprintf("%s gets input %d, which %s has acknowledged", e.w.id, d.sequence, other.w.id)
		}
	}
}

func (m *leaseModel) acknowledging(e *modelLease, d *modelMessage) {
	m.note("%s acknowledges %d of %d", e.w.id, d.number, d.sequence)
	e.l.acks.mu.Lock()
	for s := range e.l.acks.receipts {
		if s <= d.sequence {
			m.violate("%s keeps the token of input %d", e.w.id, s)
		}
	}
	e.l.acks.mu.Unlock()
	m.notes.Lock()
	if m.calm && !m.readministered { // after a reset, the server may ignore acknowledgements
		m.clean[e] = max(m.clean[e], d.sequence)
	}
	m.notes.Unlock()
}

// submits checks that a lease with commit markers computes no input that was settled before the lease began. It also checks
// that the annotation of a payload that ran alone is gone before its owner computes another one. With faults, an annotation
// may arrive late.
func (m *leaseModel) submits(e *modelLease, g *inflight.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range g.Items {
		d := &g.Items[i]
		if at, stored := m.server.storedAt[d.Sequence]; stored && at < e.opened && !d.Done {
			m.violate("lease %d of %s computes input %d, which has been settled since step %d", e.n, e.w.id, d.Sequence, at)
		}
	}
	sequence := g.Source(0).Sequence
	alone, _, _ := strings.Cut(m.server.metadata[annotationAlone], " ")
	if !m.faults && alone != "" && alone != fmt.Sprint(sequence) && !e.w.dead && m.server.metadata[annotationOwner] == e.w.id {
		m.violate("%s computes input %d while the annotations name %s", e.w.id, sequence, alone)
	}
}

// publishes records that the server receives a lease's results for inputs from first on.
func (m *leaseModel) publishes(e *modelLease, first uint64) {
	for _, in := range m.server.inputs {
		if in < first && m.server.results[in] == "" && slices.Contains(m.takes[in], e) {
			m.violate("%s publishes input %d before input %d", e.w.id, first, in)
		}
	}
}

// splitter returns the Splitter for the messages of the run.
func (m *leaseModel) splitter() frame.Splitter {
	if m.framed {
		return modelSplitter
	}
	return frame.Splitter{}
}

func (m *leaseModel) ended(e *modelLease, err error) {
	m.note("lease %d of %s ends: %v", e.n, e.w.id, err)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, store.ErrFenced) {
		err = store.ErrFenced
	}
	m.did(err.Error())
	m.notes.Lock()
	calm := m.calm
	if errors.Is(err, errPinLost) && m.lapsed {
		calm, m.lapsed = false, false // the pin expired because of faults in the second part
	}
	m.notes.Unlock()
	calm = calm && !(m.readministered && errors.Is(err, errReset))
	if calm && !e.w.isGone() && !e.repaired && !errors.Is(err, errHeldBack) {
		m.violate("lease %d of %s ends while nothing is wrong: %v", e.n, e.w.id, err)
	}
}
