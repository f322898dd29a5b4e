package ingest

import (
	"fmt"
	"slices"
)

// The server of the model, and what goes wrong around it.

// acknowledge sends an acknowledgement: it arrives, or it is late.
func (m *model) acknowledge(a ackWire) error {
	if !m.calm && m.random.IntN(3) == 0 {
		m.late = append(m.late, a)
		return nil
	}
	return m.ackAtServer(a)
}

// ackArrives lets one that was late arrive, or be lost.
func (m *model) ackArrives() error {
	if len(m.late) == 0 {
		return nil
	}
	i := m.random.IntN(len(m.late))
	a := m.late[i]
	m.late = slices.Delete(m.late, i, i+1)
	if m.random.IntN(4) == 0 {
		return nil
	}
	m.did["late"]++
	return m.ackAtServer(a)
}

// ackAtServer is what the server makes of an acknowledgement.
func (m *model) ackAtServer(a ackWire) error {
	switch {
	case a.sequence >= m.nextSequence:
		m.did["ignored by the server"]++
		return nil
	case m.exclusive && (a.number <= m.floorNumber || a.sequence <= m.floorSequence):
		m.did["ignored by the server"]++
		return nil
	case m.exclusive:
		for s := m.floorSequence + 1; s <= a.sequence; s++ {
			if m.results[s] == 0 {
				return fmt.Errorf("input %d is settled without a result, by an acknowledgement of %d", s, a.sequence)
			}
			delete(m.pending, s)
		}
		m.floorNumber, m.floorSequence = a.number, a.sequence
	default:
		if m.results[a.sequence] == 0 {
			return fmt.Errorf("input %d is settled without a result", a.sequence)
		}
		delete(m.pending, a.sequence)
	}
	m.did["acknowledged"]++
	return nil
}

// ackWaitPasses has the server deliver something again.
func (m *model) ackWaitPasses() {
	var waiting []uint64
	for s, due := range m.pending {
		if !due {
			waiting = append(waiting, s)
		}
	}
	slices.Sort(waiting) // or a seed would not replay
	if len(waiting) > 0 {
		m.pending[waiting[m.random.IntN(len(waiting))]] = true
	}
}

// lookAfter is what a lease does when nothing has come for a while.
func (m *model) lookAfter(w *modelWorker) {
	if m.exclusive && w.stale && m.random.IntN(10) == 0 {
		m.endTenure(w) // what it waits for did not come in time
		return
	}
	if !m.exclusive || len(w.inbox) > 0 || w.pin == 0 {
		return
	}
	if w.pin == m.pin && m.floorNumber <= w.taken && m.nextNumber-1 != w.taken {
		before := w.floor.Highest()
		if w.fill(m.nextSequence) && w.floor.Highest() > before {
			m.did["tail filled"]++
			w.taken = m.nextNumber - 1
			return
		}
	}
	if w.pin != m.pin || m.floorNumber > w.taken || m.nextNumber-1 != w.taken {
		m.endTenure(w)
		if w.pin == 0 && m.owner == slices.Index(m.workers, w)+1 {
			m.owner = 0
		}
	}
}

// mishap is what goes wrong.
func (m *model) mishap(w *modelWorker) {
	if m.calm {
		return
	}
	switch m.random.IntN(4) {
	case 0: // the worker dies, and another starts
		m.did["died"]++
		*w = *newModelWorker()
		if m.owner == slices.Index(m.workers, w)+1 {
			m.owner = 0
		}
	case 1: // the connection is cut: what was on its way is lost
		m.did["cut"]++
		if n := len(w.inbox); n > 0 {
			w.inbox = w.inbox[:m.random.IntN(n)]
		}
	case 2: // the server lets go of the owner
		m.owner = 0
	case 3: // something is given back
		if i := len(w.inHand) - 1; i >= 0 && !m.exclusive {
			m.did["given back"]++
			w.ledger.giveBack(m.asDelivery(w.inHand[i].wire))
			if _, open := m.pending[w.inHand[i].sequence]; open {
				m.pending[w.inHand[i].sequence] = true
			}
			w.inHand = w.inHand[:i]
		}
	}
}
