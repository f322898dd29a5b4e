package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/internal/history"
	"millrace/internal/ingest/inflight"
)

// This file models the ledger of shared delivery under random interleavings of all possible events. These are
// deliveries and redeliveries, results with lost confirmations, acknowledgements that arrive late or never, and
// workers that die. The ledger is the worker's own code. Server and network are models, with the rules of nats-server
// 2.15 (consumer.go: processAckMsgLocked). TestModelOfTheLease covers exclusive delivery.
//
// The invariant is that the server settles an input only if its result or dead letter is stored. Once faults end,
// every input is settled and has one result.

// ledgerInputs, ledgerSteps and ledgerRuns result in a million steps.
const (
	ledgerInputs = 60
	ledgerSteps  = 2500
	ledgerRuns   = 400
)

// TestModelOfSharedDelivery runs random histories.
func TestModelOfSharedDelivery(t *testing.T) {
	t.Parallel()
	history.Run(t, history.Bounds{Min: ledgerRuns, MustHappen: ledgerMustHappen}, func(h *history.History) map[string]int {
		m := newLedgerModel(rand.New(h))
		if err := m.run(ledgerSteps); err != nil {
			t.Error(err)
		}
		return m.did
	})
}

// ledgerMustHappen lists the events that must happen in some run. Without them the model proves nothing.
var ledgerMustHappen = []string{
	"delivered", "redelivered", "stored", "stored again", "confirmation lost", "acknowledged", "late", "died", "cut", "known", "given back",
}

// ledgerWire is a delivery or an acknowledgement in transit.
type ledgerWire struct {
	sequence   uint64
	deliveries int
}

// ledgerModel has one stream, its consumer, its result stream, and some workers.
type ledgerModel struct {
	random *rand.Rand
	did    map[string]int
	calm   bool // whether faults have ended

	// The next fields are the consumer's state at the server.
	nextSequence uint64
	pending      map[uint64]bool // whether AckWait has passed, by unacknowledged delivery
	counts       map[uint64]int  // number of deliveries

	results map[uint64]int // number of times an input's result was stored as new
	late    []ledgerWire
	workers []*ledgerWorker
}

// ledgerWorker is a worker with its received messages and its ledger.
type ledgerWorker struct {
	inbox  []ledgerWire
	inHand []ledgerInput
	ledger *ledger
}

func newLedgerWorker() *ledgerWorker {
	return &ledgerWorker{ledger: &ledger{held: map[uint64]time.Time{}, settled: map[uint64]time.Time{}}}
}

type ledgerInput struct {
	ledgerWire
	stored bool
}

func newLedgerModel(random *rand.Rand) *ledgerModel {
	m := &ledgerModel{
		random: random, did: map[string]int{},
		nextSequence: 1, pending: map[uint64]bool{}, counts: map[uint64]int{}, results: map[uint64]int{},
	}
	for range 3 {
		m.workers = append(m.workers, newLedgerWorker())
	}
	return m
}

// run takes random steps, and then steps without faults until all inputs are settled.
func (m *ledgerModel) run(steps int) error {
	for i := range steps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	m.calm = true
	for i := 0; m.nextSequence <= ledgerInputs || len(m.pending) > 0; i++ {
		if i > 200*steps {
			return fmt.Errorf("not all is settled: pending %v, next %d of %d", m.pending, m.nextSequence, ledgerInputs)
		}
		if err := m.step(); err != nil {
			return fmt.Errorf("calm step %d: %w", i, err)
		}
	}
	for s := uint64(1); s <= ledgerInputs; s++ {
		if m.results[s] != 1 {
			return fmt.Errorf("input %d has %d results", s, m.results[s])
		}
	}
	return nil
}

func (m *ledgerModel) step() error {
	w := m.workers[m.random.IntN(len(m.workers))]
	switch m.random.IntN(11) {
	case 0, 1, 2:
		m.deliver(w)
	case 3, 4:
		return m.receive(w)
	case 5, 6:
		m.compute(w)
	case 7:
		return m.settle(w)
	case 8:
		return m.ackArrives()
	case 9:
		m.ackWaitPasses()
	default:
		m.mishap(w)
	}
	return nil
}

// deliver sends the next message to a worker. It sends redeliveries first.
func (m *ledgerModel) deliver(w *ledgerWorker) {
	again := uint64(0)
	for s, due := range m.pending {
		if due && (again == 0 || s < again) {
			again = s
		}
	}
	sequence := again
	if again == 0 {
		if m.nextSequence > ledgerInputs {
			return
		}
		sequence = m.nextSequence
		m.nextSequence++
	} else {
		m.did["redelivered"]++
	}
	m.pending[sequence] = false
	m.counts[sequence]++
	w.inbox = append(w.inbox, ledgerWire{sequence, m.counts[sequence]})
	m.did["delivered"]++
}

// receive makes a worker process a received message.
func (m *ledgerModel) receive(w *ledgerWorker) error {
	if len(w.inbox) == 0 {
		return nil
	}
	d := w.inbox[0]
	w.inbox = w.inbox[1:]
	switch w.ledger.take(d.delivery()) {
	case unknown:
		w.inHand = append(w.inHand, ledgerInput{ledgerWire: d})
	case inFlight:
		m.did["known"]++
	case done:
		m.did["known"]++
		return m.acknowledge(d)
	}
	return nil
}

func (d ledgerWire) delivery() *inflight.Delivery {
	return &inflight.Delivery{Sequence: d.sequence, NumDelivered: d.deliveries, Stored: time.Unix(int64(d.sequence), 0)}
}

// compute stores the result of an input. If the confirmation is lost, the result is stored again later.
func (m *ledgerModel) compute(w *ledgerWorker) {
	var open []int
	for i := range w.inHand {
		if !w.inHand[i].stored {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	in := &w.inHand[open[m.random.IntN(len(open))]]
	if m.results[in.sequence] == 0 {
		m.results[in.sequence] = 1 // the stream drops a known result by its id
		m.did["stored"]++
	} else {
		m.did["stored again"]++
	}
	if !m.calm && m.random.IntN(10) == 0 {
		m.did["confirmation lost"]++
		return
	}
	in.stored = true
}

// settle acknowledges the inputs with stored results.
func (m *ledgerModel) settle(w *ledgerWorker) error {
	for i, in := range w.inHand {
		if !in.stored {
			continue
		}
		w.ledger.settle(in.delivery())
		w.inHand = slices.Delete(w.inHand, i, i+1)
		return m.acknowledge(in.ledgerWire)
	}
	return nil
}

// acknowledge sends an acknowledgement, which arrives at once or late.
func (m *ledgerModel) acknowledge(a ledgerWire) error {
	if !m.calm && m.random.IntN(3) == 0 {
		m.late = append(m.late, a)
		return nil
	}
	return m.ackAtServer(a)
}

func (m *ledgerModel) ackArrives() error {
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

func (m *ledgerModel) ackAtServer(a ledgerWire) error {
	if m.results[a.sequence] == 0 {
		return fmt.Errorf("input %d is settled without a result", a.sequence)
	}
	delete(m.pending, a.sequence)
	m.did["acknowledged"]++
	return nil
}

// ackWaitPasses makes AckWait expire for a delivery, so the server redelivers it.
func (m *ledgerModel) ackWaitPasses() {
	var waiting []uint64
	for s, due := range m.pending {
		if !due {
			waiting = append(waiting, s)
		}
	}
	slices.Sort(waiting) // makes the seed reproducible
	if len(waiting) > 0 {
		m.pending[waiting[m.random.IntN(len(waiting))]] = true
	}
}

func (m *ledgerModel) mishap(w *ledgerWorker) {
	if m.calm {
		return
	}
	switch m.random.IntN(3) {
	case 0: // the worker dies and a new one starts
		m.did["died"]++
		*w = *newLedgerWorker()
	case 1: // the connection is cut, and messages in transit are lost
		m.did["cut"]++
		if n := len(w.inbox); n > 0 {
			w.inbox = w.inbox[:m.random.IntN(n)]
		}
	case 2: // a delivery is given back
		if i := len(w.inHand) - 1; i >= 0 {
			m.did["given back"]++
			w.ledger.giveBack(w.inHand[i].delivery())
			if _, open := m.pending[w.inHand[i].sequence]; open {
				m.pending[w.inHand[i].sequence] = true
			}
			w.inHand = w.inHand[:i]
		}
	}
}
