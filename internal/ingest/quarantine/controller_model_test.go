package quarantine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/internal/history"
	"millrace/internal/ingest/inflight"
)

// This file has a model of isolated pulling. It simulates a server that counts deliveries, a device that any batch
// with a poisonous payload breaks, and processes that die because of that. The Controller under test is the worker's
// own code.

// modelMsg is a payload in the model.
type modelMsg struct {
	stored time.Duration // time of its publication
	poison bool
	count  int           // number of deliveries
	due    time.Duration // time of its redelivery if it is not settled

	done, dead bool
	mine       bool // whether it is delivered to the running process and not settled
	lone       int  // number of its runs alone
	begun      int  // same as in attemptNote
}

// crashModel simulates a server and the deaths of its workers.
type crashModel struct {
	rng     *rand.Rand
	levels  Levels
	ackWait time.Duration
	ahead   int  // number of prefetched deliveries without a quarantine
	hard    bool // whether processes die abruptly, or else give back their deliveries
	jumbled bool // whether redeliveries arrive in any order
	// ^One in mishaps batches ends the process for another reason, such as a device loss without a kernel or a
	// reboot. If mishaps is 0, no batch does.
	mishaps int

	clock   time.Duration
	msgs    []modelMsg
	fresh   int   // next message that was never delivered
	open    []int // delivered messages that are neither done nor dead, in order
	mine    []int // messages delivered to the running process and not settled
	crashes int   // number of crashes because of poisonous payloads
	others  int   // number of crashes for any other reason
	worst   int   // highest level of a good payload
}

// errDied is the error that ends a process of the model.
var errDied = errors.New("died")

func (m *crashModel) now() time.Time { return time.Unix(0, 0).Add(m.clock) }

// prepare returns the message that the server would deliver now, or -1 if there is none. Redeliveries precede new
// messages.
func (m *crashModel) prepare() int {
	best, seen := -1, 0
	for _, i := range m.open {
		msg := &m.msgs[i]
		if msg.due > m.clock || msg.mine {
			continue
		}
		seen++
		if m.jumbled && m.rng.IntN(seen) == 0 || !m.jumbled && (best < 0 || msg.due < m.msgs[best].due) {
			best = i
		}
	}
	if best < 0 && m.fresh < len(m.msgs) && m.msgs[m.fresh].stored <= m.clock {
		best = m.fresh
		m.open = append(m.open, best)
		m.fresh++
	}
	return best
}

// deliver delivers a message to the process.
func (m *crashModel) deliver(i int, take func(inflight.Delivery)) {
	msg := &m.msgs[i]
	msg.count++
	if !msg.poison {
		m.worst = max(m.worst, msg.count-1)
	}
	level := msg.count - 1
	if msg.count > m.levels.Limit {
		level = max(level, m.levels.AloneLevel())
	}
	m.mine, msg.mine = append(m.mine, i), true
	take(inflight.Delivery{Msg: &paperMsg{}, Sequence: uint64(i), NumDelivered: msg.count, Level: level})
}

func (m *crashModel) fetch(_ context.Context, n int, wait bool, take func(inflight.Delivery)) (came int, err error) {
	for came < n {
		i := m.prepare()
		if i < 0 && wait && came == 0 {
			m.clock += 250 * time.Millisecond
			wait = false
			continue
		}
		if i < 0 {
			break
		}
		m.deliver(i, take)
		came++
	}
	return came, nil
}

func (m *crashModel) outstanding(context.Context) (all, redelivered int, err error) {
	for _, i := range m.open {
		if m.msgs[i].count > 1 {
			redelivered++
		}
	}
	return len(m.open), redelivered, nil
}

func (m *crashModel) awaitQuiet(_ context.Context, mine int) error {
	if len(m.mine) != mine {
		return fmt.Errorf("%d deliveries in the process, and %d in hand", len(m.mine), mine)
	}
	return nil
}

func (m *crashModel) flow(_ context.Context, g *inflight.Batch, items []int) error {
	return m.compute(g, items)
}

func (m *crashModel) try(_ context.Context, g *inflight.Batch, items []int) error {
	level := g.Items[items[0]].Level
	if len(items) > m.levels.size(level) {
		return fmt.Errorf("%d payloads of level %d at once", len(items), level)
	}
	if level < m.levels.AloneLevel() || len(items) > 1 {
		return m.compute(g, items)
	}
	n := int(g.Items[items[0]].Sequence)
	msg := &m.msgs[n]
	if msg.begun >= LoneRuns {
		msg.dead = true
		m.settled(n)
		return nil
	}
	if m.mishap() {
		return m.die(g, items, nil, false) // the process died before the note, or the loss was reported as such
	}
	msg.begun++
	err := m.run(g, items)
	if err == nil {
		msg.begun = 0
	}
	return err
}

// mishap reports whether the process ends now for a reason other than a payload.
func (m *crashModel) mishap() bool { return m.mishaps > 0 && m.rng.IntN(m.mishaps) == 0 }

func (m *crashModel) compute(g *inflight.Batch, items []int) error {
	if m.mishap() {
		return m.die(g, items, nil, false)
	}
	return m.run(g, items)
}

// run runs a batch and settles it, or dies because of it.
func (m *crashModel) run(g *inflight.Batch, items []int) error {
	m.clock += time.Millisecond
	sick := false
	var batch []int
	for _, i := range items {
		n := int(g.Items[i].Sequence)
		batch = append(batch, n)
		sick = sick || m.msgs[n].poison
		if len(items) == 1 {
			m.msgs[n].lone++
		}
	}
	if sick {
		return m.die(g, items, batch, true)
	}
	for _, n := range batch {
		m.msgs[n].done = true
		m.settled(n)
	}
	return nil
}

// settled removes a message that is done or dead.
func (m *crashModel) settled(n int) {
	m.msgs[n].mine = false
	m.mine = slices.DeleteFunc(m.mine, func(i int) bool { return i == n })
	m.close(n)
}

// close removes a message from the open messages.
func (m *crashModel) close(n int) {
	if at, found := slices.BinarySearch(m.open, n); found {
		m.open = slices.Delete(m.open, at, at+1)
	}
}

// die ends the process during a batch. poisoned reports whether a payload of the batch was the cause.
func (m *crashModel) die(g *inflight.Batch, items, batch []int, poisoned bool) error {
	if poisoned {
		m.crashes++
	} else {
		m.others++
	}
	for _, n := range m.mine {
		m.msgs[n].mine = false
		switch {
		case m.hard:
			m.msgs[n].due = m.clock + time.Duration(m.rng.Int64N(int64(m.ackWait)))
		case slices.Contains(batch, n):
			m.msgs[n].due = m.clock + inflight.LossDelay
		default:
			m.msgs[n].due = m.clock
		}
	}
	if poisoned && !m.hard && len(items) == 1 && m.msgs[batch[0]].begun >= LoneRuns {
		m.msgs[batch[0]].dead = true
		m.close(batch[0])
	}
	m.mine = m.mine[:0]
	return errDied
}

// process runs one process of a worker. It returns errDied, or nil when no messages are left.
func (m *crashModel) process(ctx context.Context) error {
	c := &Controller{around: m, levels: m.levels, max: 1, held: heldSet{g: &inflight.Batch{}}, caution: caution{horizon: m.ackWait}}
	c.Begin(ctx)
	for {
		if all, _, _ := m.outstanding(ctx); all == 0 && m.fresh == len(m.msgs) {
			return nil
		}
		step := m.pullAhead
		if c.IsDue() {
			step = func(c *Controller) error { return m.until(ctx, c) }
		}
		if err := step(c); err != nil {
			return err
		}
	}
}

// until runs isolated pulling until it ends or all messages are settled.
func (m *crashModel) until(ctx context.Context, c *Controller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.around = &lastCall{m, cancel}
	defer func() { c.around = m }()
	return c.Run(ctx)
}

// lastCall is a crashModel that ends isolated pulling when it has no more messages.
type lastCall struct {
	*crashModel
	end func()
}

func (l *lastCall) fetch(ctx context.Context, n int, wait bool, take func(inflight.Delivery)) (int, error) {
	if all, _, _ := l.outstanding(ctx); all == 0 && l.fresh == len(l.msgs) {
		l.end()
	}
	return l.crashModel.fetch(ctx, n, wait, take)
}

// pullAhead prefetches many deliveries and runs full batches. It sets quarantined deliveries aside.
func (m *crashModel) pullAhead(c *Controller) error {
	g := &inflight.Batch{}
	var items []int
	if _, err := m.fetch(context.Background(), m.ahead, true, func(d inflight.Delivery) {
		if d.Level > 0 {
			c.SetAside(d)
			return
		}
		items = append(items, len(g.Items))
		g.Add(d)
	}); err != nil {
		return err
	}
	for part := range slices.Chunk(items, m.levels.Full) {
		if err := m.compute(g, part); err != nil {
			return err
		}
	}
	return nil
}

func newCrashModel(rng *rand.Rand) *crashModel {
	m := &crashModel{
		rng: rng, ackWait: 30 * time.Second, hard: rng.IntN(2) == 0, jumbled: rng.IntN(2) == 0,
		levels: Levels{Full: []int{1, 7, 64, 300, 1024, 8192}[rng.IntN(6)], Limit: 3 + rng.IntN(8)},
	}
	m.ahead = 1 + rng.IntN(3*m.levels.Full)
	m.msgs = make([]modelMsg, 1+rng.IntN(1500))
	spread := time.Duration(rng.IntN(2)) * time.Minute
	for i := range m.msgs {
		m.msgs[i].stored = spread * time.Duration(i) / time.Duration(len(m.msgs))
	}
	first, near := rng.IntN(len(m.msgs)), rng.IntN(2) == 0
	for k := range 1 + rng.IntN(5) {
		at := rng.IntN(len(m.msgs))
		if near {
			at = min(first+k*rng.IntN(4), len(m.msgs)-1)
		}
		m.msgs[at].poison = true
	}
	return m
}

// modelRuns is the number of histories of each model.
const modelRuns = 400

// TestPoisonCannotWedgeTheModel restarts a worker whose payloads kill it many times.
func TestPoisonCannotWedgeTheModel(t *testing.T) {
	t.Parallel()
	history.Run(t, history.Bounds{Min: modelRuns}, func(h *history.History) map[string]int {
		survive(t, newCrashModel(rand.New(h)))
		return nil
	})
}

// TestOtherEndsBlameNoPayloadInTheModel also ends processes for other reasons, far more often than any delivery
// limit.
func TestOtherEndsBlameNoPayloadInTheModel(t *testing.T) {
	t.Parallel()
	must := []string{"other ends", "good payloads that came 5 times more than the limit"}
	history.Run(t, history.Bounds{Min: modelRuns, MustHappen: must}, func(h *history.History) map[string]int {
		m := newCrashModel(rand.New(h))
		m.mishaps = 2 + m.rng.IntN(20)
		survive(t, m)
		counts := map[string]int{must[0]: m.others}
		for i := range m.msgs {
			if msg := &m.msgs[i]; msg.done && msg.count-m.levels.Limit >= 5 {
				counts[must[1]]++
			}
		}
		return counts
	})
}

// survive runs processes until no messages are left, and checks the outcome of every payload.
func survive(t *testing.T, m *crashModel) {
	t.Helper()
	poisons := 0
	for i := range m.msgs {
		if m.msgs[i].poison {
			poisons++
		}
	}
	maximum := poisons * (m.levels.AloneLevel() + LoneRuns)
	for {
		err := m.process(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, errDied) || m.crashes > maximum {
			t.Fatalf("after %d crashes, with at most %d expected: %v", m.crashes, maximum, err)
		}
		m.clock += time.Second // the supervisor's restart delay
	}
	m.judge(t)
}

func (m *crashModel) judge(t *testing.T) {
	t.Helper()
	for i := range m.msgs {
		switch msg := &m.msgs[i]; {
		case msg.poison && (!msg.dead || msg.done):
			t.Errorf("payload %d is poisonous and was not given up", i)
		case msg.poison && msg.lone < LoneRuns:
			t.Errorf("payload %d was given up after it ran alone %d times", i, msg.lone)
		case !msg.poison && (msg.dead || !msg.done):
			t.Errorf("payload %d is good and was given up, or left", i)
		}
	}
	if alone := m.levels.AloneLevel(); m.worst > alone && m.mishaps == 0 {
		t.Errorf("a good payload came to level %d, and is tried alone from %d on (full %d, limit %d, hard %t)",
			m.worst, alone, m.levels.Full, m.levels.Limit, m.hard)
	}
	if t.Failed() {
		t.FailNow()
	}
}
