package partitioned

import (
	"testing"
	"testing/synctest"
)

// Interleavings that the model of the lease found, each of which broke an invariant once.

// inLeaseModel runs a script with three workers, none of which has the partition.
func inLeaseModel(t *testing.T, seed uint64, script func(m *leaseModel)) {
	t.Helper()
	m := newLeaseModel(seed)
	synctest.Test(t, func(*testing.T) {
		m.start()
		defer m.stop()
		script(m)
	})
	if m.broken != "" {
		t.Errorf("seed %d: %s", seed, m.broken)
	}
}

// leaveBehind has the server deliver the first n inputs to an owner that dies at once.
func (m *leaseModel) leaveBehind(n int) {
	s := m.server
	for _, in := range s.inputs[:n] {
		s.pending[in] = false
		s.nextNumber++
		s.nextSequence = in + 1
	}
}

// locked does what the scheduler does.
func (m *leaseModel) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// answerAll answers calls until there are none.
func (m *leaseModel) answerAll() {
	for synctest.Wait(); len(m.calls) > 0; synctest.Wait() {
		m.locked(m.answer)
	}
}

// answerNext answers the only call, which must be that one.
func (m *leaseModel) answerNext(what string) {
	synctest.Wait()
	if len(m.calls) != 1 || m.calls[0].what != what {
		m.violate("the script expects a call of %s", what)
		return
	}
	m.locked(m.answer)
	synctest.Wait()
}

// arriveAll lets everything arrive that the server has sent.
func (m *leaseModel) arriveAll() {
	for range 100 {
		m.locked(m.arrive)
	}
	synctest.Wait()
}

// The owner before had only a few deliveries. The new one gets the next, and resets the consumer. If it processed those of before
// the reset, its acknowledgements would name numbers that the server has yet to give, and it would end because of them.
func TestALeaseTakesNothingOfBeforeItsReset(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		inLeaseModel(t, seed, func(m *leaseModel) {
			m.leaveBehind(2)
			m.calmDown()
			m.handOvers()
		})
	}
}

// The consumer is reset after the server has sent the first message of a lease, and before the lease resets it itself. What the lease
// takes in between is delivered again, so the server no longer knows that it was delivered before. The lease notes that.
func TestALeaseNotesWhatItTookBeforeAReset(t *testing.T) {
	t.Parallel()
	inLeaseModel(t, 1, func(m *leaseModel) {
		s, w := m.server, m.workers[0]
		m.leaveBehind(5)
		m.locked(func() { m.give(w) })
		synctest.Wait()
		m.locked(s.deliver) // number 6: the lease will reset the consumer
		m.arriveAll()
		m.locked(m.resetByAnother)
		for range 6 {
			m.locked(s.deliver)
		}
		m.answerNext("pin")
		m.answerNext("info")
		m.locked(s.deliver) // the answer did not know of this one
		taken := s.nextSequence - 1
		m.answerNext("annotate")
		m.answerNext("reset")
		m.arriveAll()
		m.answerAll()
		if s.results[taken] == "" {
			m.violate("input %d is not processed, and nothing is shown", taken)
		}
		m.locked(s.deliver)
		m.arriveAll()
		m.answerAll()
		if noted := delivered(s.metadata); noted < taken {
			m.violate("input %d was processed, and the annotations say that %d was the last one delivered", taken, noted)
		}
	})
}
