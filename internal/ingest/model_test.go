package ingest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"millrace/internal/ingest/partition"
)

// The settle logic under random interleavings of everything that can come between: deliveries and redeliveries, results
// whose confirmation is lost, acknowledgements that come late or never, workers that die, partitions that change hands.
// What decides (ledger, partition.Floor) is the worker's own code; server and network are models, whose rules are those of
// nats-server 2.15 (consumer.go: processAckMsgLocked, resetLocalStartingSeq).
//
// The invariant: the server counts no input as settled whose result or dead letter is not stored. And once nothing goes
// wrong any more, every input is settled, with one result.

// modelInputs, modelSteps and modelSeeds make a million steps for each mode.
const (
	modelInputs = 60
	modelSteps  = 2500
	modelSeeds  = 400
)

func TestModelOfSharedDelivery(t *testing.T)    { runModels(t, false) }
func TestModelOfExclusiveDelivery(t *testing.T) { runModels(t, true) }

// runModels runs all seeds, or the one of MILLRACE_MODEL_SEED.
func runModels(t *testing.T, exclusive bool) {
	t.Parallel()
	first, last := uint64(1), uint64(modelSeeds)
	if text := os.Getenv("MILLRACE_MODEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, last = seed, seed
	}
	covered := map[string]int{}
	for seed := first; seed <= last; seed++ {
		m := newModel(seed, exclusive)
		if err := m.run(modelSteps); err != nil {
			t.Fatalf("MILLRACE_MODEL_SEED=%d: %v", seed, err)
		}
		for what, n := range m.did {
			covered[what] += n
		}
	}
	if first != last {
		for _, what := range mustHappen(exclusive) {
			if covered[what] == 0 {
				t.Errorf("in no run: %s", what)
			}
		}
	}
	t.Logf("%v", covered)
}

// mustHappen is what must have happened in some run, or the model shows nothing.
func mustHappen(exclusive bool) []string {
	all := []string{"delivered", "redelivered", "stored", "stored again", "confirmation lost", "acknowledged", "late", "died", "cut"}
	if exclusive {
		return append(all, "acknowledged again", "changed hands", "started again", "gap", "never came", "tail filled", "ignored by the server")
	}
	return append(all, "known", "given back")
}

// wire is something on its way from the server to a worker: a delivery.
type wire struct {
	number, sequence uint64
	deliveries       int
	pin              int
}

// ackWire is an acknowledgement on its way to the server.
type ackWire struct{ number, sequence uint64 }

// model is one stream, its consumer, its result stream, and some workers.
type model struct {
	random    *rand.Rand
	exclusive bool
	did       map[string]int
	calm      bool // nothing goes wrong any more

	// The consumer, as the server keeps it.
	nextSequence, nextNumber   uint64
	floorSequence, floorNumber uint64
	pending                    map[uint64]bool // delivered and not acknowledged: whether AckWait has passed
	counts                     map[uint64]int  // deliveries
	acked                      map[uint64]bool // by an explicit acknowledgement
	pin, owner                 int             // the current pin, and whose it is; 0 for nobody's

	results map[uint64]int // how often the result of an input was stored anew: once, where the window is long enough
	late    []ackWire
	workers []*modelWorker
	pins    int
}

// modelWorker is a worker: what it has been sent, and what it knows.
type modelWorker struct {
	inbox  []wire
	inHand []modelInput
	ledger *ledger // shared

	pin   int // exclusive: of the lease; 0 for none
	floor partition.Floor
	stale bool // until the first delivery after the consumer started again
	taken uint64
	acked ackWire // the last acknowledgement of the lease
}

func newModelWorker() *modelWorker {
	return &modelWorker{ledger: &ledger{held: map[uint64]time.Time{}, settled: map[uint64]time.Time{}}}
}

type modelInput struct {
	wire
	stored bool
}

func newModel(seed uint64, exclusive bool) *model {
	m := &model{
		random: rand.New(rand.NewPCG(seed, 11)), exclusive: exclusive, did: map[string]int{},
		nextSequence: 1, nextNumber: 1, pending: map[uint64]bool{}, counts: map[uint64]int{}, acked: map[uint64]bool{},
		results: map[uint64]int{},
	}
	for range 3 {
		m.workers = append(m.workers, newModelWorker())
	}
	return m
}

// run takes random steps, then only good ones until all is settled.
func (m *model) run(steps int) error {
	for i := range steps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	m.calm = true
	for i := 0; !m.finished(); i++ {
		if i > 200*steps {
			return fmt.Errorf("not all is settled: floor %d, pending %v, next %d of %d", m.floorSequence, m.pending, m.nextSequence, modelInputs)
		}
		if err := m.step(); err != nil {
			return fmt.Errorf("calm step %d: %w", i, err)
		}
	}
	for s := uint64(1); s <= modelInputs; s++ {
		if m.results[s] != 1 {
			return fmt.Errorf("input %d has %d results", s, m.results[s])
		}
	}
	return nil
}

func (m *model) finished() bool { return m.nextSequence > modelInputs && len(m.pending) == 0 }

func (m *model) step() error {
	w := m.workers[m.random.IntN(len(m.workers))]
	switch m.random.IntN(12) {
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
	case 10:
		m.lookAfter(w)
	default:
		m.mishap(w)
	}
	return nil
}

// deliver sends the next message to a worker that may have it: what is to come again first.
func (m *model) deliver(w *modelWorker) {
	if m.exclusive && !m.pinned(w) {
		return
	}
	again := uint64(0)
	for s, due := range m.pending {
		if due && (again == 0 || s < again) {
			again = s
		}
	}
	sequence := again
	if again == 0 {
		if m.nextSequence > modelInputs {
			return
		}
		sequence = m.nextSequence
		m.nextSequence++
	} else {
		m.did["redelivered"]++
	}
	m.pending[sequence] = false
	m.counts[sequence]++
	if m.exclusive && sequence%13 == 0 { // the client passes some on to nobody
		m.nextNumber++
		m.did["never came"]++
		return
	}
	w.inbox = append(w.inbox, wire{m.nextNumber, sequence, m.counts[sequence], m.pin})
	m.nextNumber++
	m.did["delivered"]++
}

// pinned says whether the consumer's messages go to w; where they go to nobody, they do from now on.
func (m *model) pinned(w *modelWorker) bool {
	index := slices.Index(m.workers, w) + 1
	if m.owner == 0 {
		m.pins++
		m.owner, m.pin = index, m.pins
		m.did["changed hands"]++
	}
	return m.owner == index
}

// receive has a worker take what came.
func (m *model) receive(w *modelWorker) error {
	if len(w.inbox) == 0 {
		return nil
	}
	d := w.inbox[0]
	w.inbox = w.inbox[1:]
	if m.exclusive {
		return m.receiveExclusive(w, d)
	}
	switch w.ledger.take(m.asDelivery(d)) {
	case unknown:
		w.inHand = append(w.inHand, modelInput{wire: d})
	case inHand:
		m.did["known"]++
	case done:
		m.did["known"]++
		return m.acknowledge(ackWire{d.number, d.sequence})
	}
	return nil
}

func (m *model) asDelivery(d wire) *delivery {
	return &delivery{sequence: d.sequence, deliveries: d.deliveries, stored: time.Unix(int64(d.sequence), 0)}
}

// receiveExclusive is lease.read and lease.take.
func (m *model) receiveExclusive(w *modelWorker, d wire) error {
	if w.pin == 0 {
		if len(w.inHand) > 0 {
			w.inbox = append([]wire{d}, w.inbox...) // a lease begins when the one before has settled what it had
			return nil
		}
		w.pin, w.floor, w.taken, w.acked = d.pin, partition.NewFloor(m.floorSequence), 0, ackWire{}
		w.stale = d.number != 1
		if w.stale {
			m.restart()
		}
	}
	if w.stale = w.stale && d.number > modelFill; w.stale {
		return nil
	}
	if d.pin != w.pin {
		m.endTenure(w)
		return nil
	}
	verdict := w.floor.Take(d.number, d.sequence, d.deliveries > 1)
	if verdict == partition.Gap {
		m.did["gap"]++
		if !w.fill(d.sequence) {
			m.endTenure(w)
			return nil
		}
		verdict = w.floor.Take(d.number, d.sequence, d.deliveries > 1)
	}
	switch verdict {
	case partition.New:
		w.inHand = append(w.inHand, modelInput{wire: d})
		w.taken = d.number
	case partition.Known:
		w.taken = d.number
		if d.sequence <= w.acked.sequence {
			m.did["acknowledged again"]++
			return m.acknowledge(w.acked)
		}
	case partition.Gap:
		return errors.New("a gap that was filled is still there")
	}
	return nil
}

// modelFill is fillMost, small so that it matters.
const modelFill = 5

// fill is lease.fill: the stream has every input. It reports false where too many are missing.
func (w *modelWorker) fill(sequence uint64) bool {
	var missing []uint64
	for s := w.floor.Highest() + 1; s < sequence; s++ {
		missing = append(missing, s)
	}
	if len(missing) > modelFill {
		return false
	}
	for i, s := range missing {
		w.inHand = append(w.inHand, modelInput{wire: wire{number: w.taken + 1 + uint64(i), sequence: s, pin: w.pin}})
	}
	w.floor.Fill(missing, sequence)
	return true
}

// endTenure leaves what is in hand to be settled, and what is in the inbox to the next lease.
func (m *model) endTenure(w *modelWorker) { w.pin, w.inbox, w.stale = 0, nil, false }

// restart has the consumer start again from its floor.
func (m *model) restart() {
	m.did["started again"]++
	m.pending, m.counts = map[uint64]bool{}, map[uint64]int{}
	m.nextSequence, m.nextNumber = m.floorSequence+1, 1
	m.floorNumber = 0
}

// compute stores the result of something in hand; its confirmation may get lost, and then it is stored again.
func (m *model) compute(w *modelWorker) {
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
		m.results[in.sequence] = 1 // what has been stored is dropped, by its id
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

// settle acknowledges what is stored.
func (m *model) settle(w *modelWorker) error {
	if m.exclusive {
		return m.settleExclusive(w)
	}
	for i, in := range w.inHand {
		if !in.stored {
			continue
		}
		w.ledger.settle(m.asDelivery(in.wire))
		w.inHand = slices.Delete(w.inHand, i, i+1)
		return m.acknowledge(ackWire{in.number, in.sequence})
	}
	return nil
}

// settleExclusive is lease.settled and lease.acknowledge.
func (m *model) settleExclusive(w *modelWorker) error {
	for _, in := range w.inHand {
		if in.stored {
			w.floor.Settle(in.sequence)
		}
	}
	numbers := map[uint64]uint64{}
	for _, in := range w.inHand {
		numbers[in.sequence] = in.number
	}
	sequence, ok := w.floor.Acknowledge()
	if !ok {
		return nil
	}
	w.inHand = slices.DeleteFunc(w.inHand, func(in modelInput) bool { return in.sequence <= sequence })
	w.acked = ackWire{numbers[sequence], sequence}
	return m.acknowledge(w.acked)
}
