package partitioned

import (
	"testing"
	"testing/synctest"
)

// Interleavings that the model of the lease found. Each of them once broke an invariant.

// inLeaseModel runs a script with three workers. None of them owns the partition.
func inLeaseModel(t *testing.T, seed uint64, script func(m *leaseModel)) {
	t.Helper()
	m := newLeaseModel(seed, newModelLab(t))
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

// locked calls do with the lock that the scheduler holds.
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

// answerNext answers the only pending call, which must be what.
func (m *leaseModel) answerNext(what string) {
	synctest.Wait()
	if len(m.calls) != 1 || m.calls[0].what != what {
		m.violate("the script expects a call of %s", what)
		return
	}
	m.locked(m.answer)
	synctest.Wait()
}

// arriveAll delivers all messages that the server has sent.
func (m *leaseModel) arriveAll() {
	for range 100 {
		m.locked(m.arrive)
	}
	synctest.Wait()
}

// TestALeaseTakesNothingOfBeforeItsReset: the previous owner had only a few deliveries. The new owner gets the next ones and
// resets the consumer. If it processed the deliveries from before the reset, its acknowledgements would name consumer sequences
// that the server has yet to assign, and the lease would end because of them.
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

// TestALeaseNotesWhatItTookBeforeAReset: the consumer is reset after the server has sent the first message of a lease, and before
// the lease itself resets it. Inputs that the lease takes in between are redelivered, and the server no longer knows that it
// delivered them before. The lease annotates that.
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
		m.locked(s.deliver) // the answer was made before this delivery
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
