package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"millrace/internal/history"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// The lease model runs real leases of several workers against a model of the server, in a testing/synctest bubble.
// Every request of a lease to the server or the device waits until the scheduler, which is this test, picks it. The
// scheduler therefore controls the order of all events, the time, and the faults. All its decisions follow from a
// history.
//
// The server may also crash and restart with an older state of the consumer. An administrator may reset the consumer.
//
// In half of the runs some messages are frames of any number of records. The operator fails on some records. A frame
// may be spread over several batches. In some runs a record kills every worker that computes it.
//
// Each run has three parts. In the first part all faults happen, but some runs skip it. Workers crash, freeze and
// lose their device. The server drops pins. The streams of results and dead letters have no room for a while. Requests, answers, deliveries and acknowledgements are lost or late. In
// the second part all leases end. If a record kills workers, one worker after another then has the partition until
// that record is given up. In the third part the partition moves from worker to worker, and only single deliveries
// and acknowledgements are lost.
//
// These invariants always hold:
//   - The server settles an input only if its result or dead letter is stored.
//   - The acknowledgement floor never decreases.
//   - All results of an input have the same id. No message is stored twice, although the streams forget ids after their duplicate
//     windows, unless the consumer has forgotten the delivery of its input.
//   - An input that is marked as a first delivery had no result when the server sent it.
//   - A lease takes each input once, publishes inputs in order, and takes no input of a later turn.
//   - A lease that has lost the partition neither changes the new owner's annotations nor unpins the new owner.
//   - An input or record is dead-lettered after the loss of a device only if it was alone on the device when two owners were
//     lost. If only lethal records end owners, no other records are dead-lettered because of that.
//   - Every record of a frame is exactly once in the frame's only result. It has its correct result, or an error and a dead
//     letter that was stored before.
//   - The number of deaths until all lethal records are found is limited by the number of lethal records, and of messages on
//     which the operator fails.
//   - A worker whose lease has ended holds no memory of deliveries and no batches.
//
// In the third part these invariants hold too:
//   - A lease ends only if the partition is taken from its worker or if it has repaired the consumer.
//   - The server pins no client that has left.
//   - An input that a lease has acknowledged is not delivered to the next lease.
//   - All inputs have a result and are acknowledged.

const (
	modelInputs  = 40     // number of inputs at the start, and of those added in the third part
	modelChaos   = 1500   // number of steps in the first part
	modelLimit   = 5      // number of failures after which a payload is given up
	modelPatient = 30_000 // maximum number of steps of any wait without faults
)

// leaseModel is the scheduler and its state.
type leaseModel struct {
	modelPolicy
	seed      uint64
	random    *rand.Rand
	log       *slog.Logger
	confirms  bool          // whether workers wait for the confirmation of each acknowledgement
	framed    bool          // whether some messages are frames
	chaos     bool          // whether the run has its first part
	window    time.Duration // the streams' duplicate window
	way       store.Way
	narrow    bool // whether the result stream has little space, so order may be lost
	resetting bool // whether an administrator often resets the consumer, because few resets need a repair
	burst     int  // number of deliveries at once
	cutting   bool // whether fast batches are larger and often interrupted in the middle
	faults    bool
	hunting   bool    // whether only lethal records cost owners
	poison    int     // input with records that kill the worker that computes them; 0 means none
	trouble   float64 // probability of a possible fault
	calm      bool    // whether the third part runs

	*modelLab
	operators []operator.Operator // the last one may be stateful

	server  *modelServer
	workers []*leaseWorker
	made    int
	deaths  int // number of workers that lethal records have killed
	acks    []modelAck
	steps   int
	begin   int // number of inputs before the third part
	all     sync.WaitGroup

	mu     sync.Mutex // held while the scheduler acts, and by workers for shared state
	calls  []*modelCall
	lossy  bool // whether the last acknowledgement was lost
	active int  // number of leases that have not ended

	notes          sync.Mutex // guards the following fields, and steps and calm
	counts         map[string]int
	trace          []string
	broken         string
	calmAt         time.Time // start of the third part
	readministered bool      // whether an administrator has reset the consumer in the third part
	lapsed         bool      // whether a pin has expired in the third part that was not renewed there

	messages        map[uint64]*modelInput
	failing, lethal map[uint32]bool // by checksum of a record
	chance          map[uint32]bool // rows that have failed alone by chance, by checksum
	killers         int             // number of lethal records

	takes map[uint64][]*modelLease // leases that took each input
	clean map[*modelLease]uint64   // last input that each lease of the third part has acknowledged
}

// modelAck is an acknowledgement in transit to the server.
type modelAck struct {
	w                *leaseWorker
	number, sequence uint64
	what             string // with shared delivery: the kind, and what it does
	apply            func()
}

func newLeaseModel(h *history.History, lab *modelLab, p modelPolicy) *leaseModel {
	m := &leaseModel{
		modelPolicy: p,
		modelLab:    lab, operators: lab.plain, messages: map[uint64]*modelInput{}, failing: map[uint32]bool{}, lethal: map[uint32]bool{}, chance: map[uint32]bool{},
		seed: h.Seed, random: rand.New(h), log: slog.New(slog.DiscardHandler), counts: map[string]int{},
		takes: map[uint64][]*modelLease{}, clean: map[*modelLease]uint64{},
	}
	m.burst, m.confirms, m.trouble = 1, m.random.IntN(4) == 0, 0.02+0.5*m.random.Float64()
	m.server = &modelServer{
		m: m, modelConsumer: modelConsumer{nextSequence: 1, nextNumber: 1, pending: map[uint64]bool{}, counts: map[uint64]int{}}, results: map[uint64]string{},
		values: map[uint64]modelValues{}, storedAt: map[uint64]int{}, forgotten: map[uint64]bool{}, alone: map[uint64]int{}, aloneRecords: map[modelRecord]int{},
		letters: map[modelRecord]record.Status{}, sentTo: map[uint64]*leaseWorker{}, sentAt: map[uint64]time.Time{}, delayed: map[uint64]time.Time{}, metadata: map[string]string{topology.MarkDelivered: "0"},
	}
	m.server.saved = m.server.clone()
	for i, name := range []string{"results", "dead letters"} {
		m.server.chains[i] = modelChain{name: name, ids: map[string]time.Time{}}
	}
	m.window = []time.Duration{4 * time.Second, 20 * time.Second, 2 * time.Minute}[m.random.IntN(3)]
	return m
}

// addInputs adds n messages to the partition. Some messages of other partitions lie between them.
func (m *leaseModel) addInputs(n int) {
	s := m.server
	next := uint64(1)
	if len(s.inputs) > 0 {
		next = s.last() + 1
	}
	for range n {
		next += uint64(m.random.IntN(2))
		m.notes.Lock()
		m.messages[next] = m.newModelInput(next, len(s.inputs)+1 == m.poison)
		m.notes.Unlock()
		s.inputs = append(s.inputs, next)
		next++
	}
}

// did counts an event, note adds an event to the trace, and violate ends the run.
func (m *leaseModel) did(what string) {
	m.notes.Lock()
	m.counts[what]++
	m.notes.Unlock()
}

func (m *leaseModel) note(format string, args ...any) {
	m.notes.Lock()
	m.trace = append(m.trace, fmt.Sprintf("%5d  ", m.steps)+fmt.Sprintf(format, args...))
	m.notes.Unlock()
}

func (m *leaseModel) violate(format string, args ...any) {
	m.note("BROKEN: "+format, args...)
	m.notes.Lock()
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
	m.notes.Unlock()
}

// start starts three workers, and stop ends them.
func (m *leaseModel) start() {
	for slot := range 3 {
		m.workers = append(m.workers, nil)
		m.newWorker(slot)
	}
}

func (m *leaseModel) stop() {
	m.mu.Lock()
	for _, w := range m.workers {
		m.end(w)
	}
	m.mu.Unlock()
	synctest.Wait()
	m.all.Wait()
}

// run executes one run with its three parts.
func (m *leaseModel) run() {
	m.choose()
	m.addInputs(modelInputs * m.burst)
	m.start()
	defer m.stop()
	m.faults = m.chaos
	for range modelChaos {
		if m.broken == "" && m.chaos {
			m.step()
		}
	}
	m.awaitQuiet()
	if m.killers > 0 {
		m.hunt()
		m.awaitQuiet()
	}
	m.begin = len(m.server.inputs)
	m.addInputs(modelInputs)
	m.calmDown()
	if m.shared {
		m.share()
	} else {
		m.handOvers()
	}
	if m.broken == "" && m.stateful() != nil {
		m.wantVerdicts()
	}
}

// choose draws the settings of a run.
func (m *leaseModel) choose() {
	m.framed, m.chaos = m.random.IntN(2) == 0, true
	if m.random.IntN(3) == 0 {
		m.chaos = m.random.IntN(2) == 0
		m.poison = 1 + m.random.IntN(modelInputs)
	}
	m.resetting = !m.shared && m.random.IntN(6) == 0
	if !m.once {
		return
	}
	if m.way = []store.Way{store.Atomic, store.Fast}[m.random.IntN(2)]; m.random.IntN(3) == 0 {
		m.operators = m.withState
	}
	if m.way == store.Fast {
		m.narrow, m.cutting = m.random.IntN(2) == 0, m.random.IntN(2) == 0
	}
	if m.cutting {
		m.burst, m.trouble = 5, m.trouble/8 // after many faults a lease takes its inputs one by one
	}
}

// newWorker starts a new worker in a slot.
func (m *leaseModel) newWorker(slot int) {
	m.made++
	w := &leaseWorker{m: m, slot: slot, device: m.devices[m.random.IntN(len(m.devices))], id: fmt.Sprint("worker-", m.made), start: make(chan context.Context, 1), stop: func() {}}
	var life context.Context
	life, w.life = context.WithCancel(context.Background())
	w.drain, w.kill = context.WithCancel(context.Background())
	if m.random.IntN(2) == 0 {
		w.memory = int64(4+m.random.IntN(60)) << 10
	}
	w.maxPayload = []int64{1 << 20, 515, 485}[m.random.IntN(3)]
	if m.stateful() != nil && w.maxPayload < 1<<20 {
		w.maxPayload *= 2 // for log entries
	}
	if !m.shared {
		w.maxPayload += int64(store.HeaderBytes)
	}
	w.newPool()
	w.states = w.newStates()
	m.workers[slot] = w
	m.all.Go(func() { w.run(life) })
}

// newPool gives a process its pool and its judge.
func (w *leaseWorker) newPool() {
	w.pool, _ = inflight.NewPool([]*streams.Pipeline{w.device.pipe}, memory.Worker{Messages: memory.Messages{
		Format: operator.Binary, Operators: w.m.operators, Split: w.m.splitter(),
	}})
	w.judge = quarantine.NewJudge([]*streams.Pipeline{w.device.pipe}, &inflight.Progress{}, w.m.log)
	if w.memory > 0 {
		w.pool.Limit = w.memory // some messages wait for memory
	}
}

// step performs one random action, once all workers wait.
func (m *leaseModel) step() {
	synctest.Wait()
	m.mu.Lock()
	m.notes.Lock()
	m.steps++
	m.notes.Unlock()
	m.mu.Unlock()
	n := m.random.IntN(40)
	if n < 2 {
		m.pass()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calm || m.hunting {
		m.replaceLost()
	}
	switch {
	case n < 20:
		m.answer()
	case n < 25:
		for range m.burst {
			m.deliver()
		}
	case n < 31:
		for range m.burst {
			m.arrive()
		}
	case n < 34:
		m.ackArrives()
	case !m.faults:
	case n < 35:
		m.elect()
	case n < 36:
		m.server.ackWaitPasses()
	case n < 37:
		m.addInputs(m.random.IntN(3 * m.burst))
	case n < 38 && m.random.IntN(20) == 0:
		m.server.saved = m.server.clone()
	default:
		if m.random.Float64() < m.trouble {
			m.mishap()
		}
	}
}

func (m *leaseModel) isFrozen(w *leaseWorker) bool { return m.steps < w.frozenUntil }

// answer applies a call at the server and returns the answer to the caller. The call or its answer may be lost.
func (m *leaseModel) answer() {
	i := m.pick()
	if i < 0 {
		return
	}
	c := m.calls[i]
	m.calls = slices.Delete(m.calls, i, i+1)
	fate := m.random.IntN(60)
	switch {
	case c.gone && (!m.faults || fate < 30):
		m.did("request lost")
	case c.gone:
		if !c.local {
			m.did("late request")
			m.note("%s: %s, late", c.w.id, c.what)
			_ = c.apply()
		}
	case m.faults && !c.local && fate == 0:
		m.did("request lost")
		m.note("%s: %s is lost", c.w.id, c.what)
	case m.faults && !c.local && fate == 1:
		m.did("answer lost")
		m.note("%s: %s, and the answer is lost", c.w.id, c.what)
		_ = c.apply()
	default:
		err := c.apply()
		m.note("%s: %s %v", c.w.id, c.what, err)
		if errors.Is(err, errModelSilent) {
			m.interrupt(c.w)
			return
		}
		if errors.Is(err, errModelKilled) {
			m.did("killed by an input")
			m.crash(c.w)
			m.deaths++
			if m.faults {
				m.give(m.workers[c.w.slot])
			}
			return
		}
		c.done <- err
	}
}

// arrive moves the next message from a connection to its client.
func (m *leaseModel) arrive() {
	var with []*modelPull
	for _, p := range m.server.pulls {
		if len(p.wire) > 0 && !m.isFrozen(p.w) {
			with = append(with, p)
		}
	}
	if len(with) == 0 {
		return
	}
	p := with[m.random.IntN(len(with))]
	for range 1 + m.random.IntN(4) {
		if len(p.wire) > 0 {
			msg := p.wire[0]
			p.wire = p.wire[1:]
			if !p.leaving && !p.w.dead {
				p.in <- msg
			}
		}
	}
}

// ackArrives delivers an acknowledgement to the server, or loses it.
func (m *leaseModel) ackArrives() {
	if len(m.acks) == 0 {
		return
	}
	i := 0
	if m.faults {
		i = m.random.IntN(len(m.acks))
	}
	a := m.acks[i]
	if m.isFrozen(a.w) {
		return
	}
	m.acks = slices.Delete(m.acks, i, i+1)
	m.lossy = (m.faults || m.calm && !m.lossy) && m.random.IntN(8) == 0
	if m.lossy {
		m.did("acknowledgement lost")
		m.note("%s's acknowledgement %d of %d is lost", a.w.id, a.number, a.sequence)
		return
	}
	m.note("%s's acknowledgement %d%s of %d arrives", a.w.id, a.number, a.what, a.sequence)
	if a.apply != nil {
		a.apply()
		return
	}
	m.server.acknowledge(a.number, a.sequence)
}

func (m *leaseModel) deliver() {
	if m.shared {
		m.server.deliverShared()
		return
	}
	m.server.deliver()
}

// pass advances the time.
func (m *leaseModel) pass() {
	maximum := 200 * time.Millisecond
	if m.faults || m.hunting {
		maximum = time.Second
	}
	if m.faults && m.random.Float64() < m.trouble/4 {
		maximum = 2 * topology.PinnedFor
	}
	retry.Sleep(context.Background(), time.Duration(m.random.Int64N(int64(maximum))))
}

// awaitQuiet runs the second part. All leases end, and it drops the remaining requests and acknowledgements in transit.
func (m *leaseModel) awaitQuiet() {
	m.mu.Lock()
	m.faults = false
	for _, w := range m.workers {
		w.frozenUntil = 0
		m.take(w)
	}
	m.mu.Unlock()
	m.until("all leases end", m.isIdle)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acks, m.calls = nil, nil
	for _, w := range m.workers {
		w.over = w.over || w.lost != nil
	}
	m.replace()
	for _, p := range m.server.pulls {
		p.open = false
	}
}

// until takes steps until done returns true.
func (m *leaseModel) until(what string, done func() bool) {
	for range modelPatient {
		synctest.Wait()
		if m.broken != "" || done() {
			return
		}
		m.step()
	}
	m.violate("it takes forever until %s: floor %d, pending %v, next %d, pin %q", what, m.server.floorSequence,
		slices.Sorted(maps.Keys(m.server.pending)), m.server.nextSequence, m.server.pin)
}
