package partitioned

import (
	"testing"
	"testing/synctest"

	"millrace/internal/history"
)

// This file has interleavings that the model of the lease found. Each of them once broke an invariant.

// inLeaseModel runs a script with three workers. No worker owns the partition when the script starts.
func inLeaseModel(t *testing.T, seed uint64, script func(m *leaseModel)) {
	t.Helper()
	m := newLeaseModel(history.New(seed), newModelLab(t))
	m.addInputs(modelInputs)
	synctest.Test(t, func(*testing.T) {
		m.start()
		defer m.stop()
		script(m)
	})
	if m.broken != "" {
		t.Errorf("seed %d: %s", seed, m.broken)
	}
}

// leaveBehind delivers the first n inputs to an owner that dies at once.
func (m *leaseModel) leaveBehind(n int) {
	s := m.server
	for _, in := range s.inputs[:n] {
		s.pending[in] = false
		s.nextNumber++
		s.nextSequence = in + 1
	}
}

// locked calls do while it holds the scheduler's lock.
func (m *leaseModel) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *leaseModel) answerAll() {
	for synctest.Wait(); len(m.calls) > 0; synctest.Wait() {
		m.locked(m.answer)
	}
}

func (m *leaseModel) arriveAll() {
	for range 100 {
		m.locked(m.arrive)
	}
	synctest.Wait()
}

// TestALeaseTakesWhatADeadOwnerHad shows that an owner reads the deliveries of a dead predecessor from the stream.
// The server sends it only later inputs.
func TestALeaseTakesWhatADeadOwnerHad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		inLeaseModel(t, seed, func(m *leaseModel) {
			m.leaveBehind(2)
			m.calmDown()
			m.handOvers()
		})
	}
}

// TestALeaseTakesInputsThatTheServerCouldNotSend simulates two inputs that the server could not send to the previous
// owner. It counts them as never delivered and sends them again, in either order. An acknowledgement of one input
// must not cover the other.
func TestALeaseTakesInputsThatTheServerCouldNotSend(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		inLeaseModel(t, 1, func(m *leaseModel) {
			s, w := m.server, m.workers[0]
			m.leaveBehind(2)
			m.locked(func() { m.give(w) })
			synctest.Wait()
			for _, i := range order {
				m.locked(func() { s.pending[s.inputs[i]] = true; s.deliver() })
				m.answerAll()
				m.arriveAll()
				m.answerAll()
			}
			for m.locked(m.ackArrives); len(m.acks) > 0; {
				m.locked(m.ackArrives)
			}
			if s.floorSequence != s.inputs[1] || s.results[s.inputs[0]] == "" || s.results[s.inputs[1]] == "" {
				m.violate("in the order %v: floor %d, results %v", order, s.floorSequence, s.results)
			}
		})
	}
}
