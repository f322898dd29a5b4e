package sim

import (
	"container/heap"
	"slices"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// gateTime is the device time after which a gate opens by itself (see device.Gater).
const gateTime = 10 * time.Second

// loop is the software.Clock of virtual time. It has no goroutines: a waiting caller runs the simulation. The device's
// lock guards it.
type loop struct {
	dev    *software.Device
	seed   uint64
	cost   Model
	faults []Fault
	counts counts
	trace  []Span
	holds  int // number of calls of Hold without a release

	now      time.Duration
	queued   int                // number of operations not yet carried out, plus late completions
	runnable []*software.Stream // streams whose first operation may be able to run
	engines  [engineCount]engine
	running  taskHeap // operations on an engine, and late completions, ordered by end
	blocked  []*task  // waits and gates that block a stream now, in the order in which their streams reached them
}

// task is an operation in the simulation.
type task struct {
	*software.Op
	seq      uint64
	enqueued time.Duration
	start    time.Duration
	cost     time.Duration // duration on its engine
	due      time.Duration // while queued, time at which it became ready; in service, time at which it ends
	issued   bool          // whether issue has started the operation
	fault    *Fault        // injected fault of a launch or a notification, or nil
	late     bool          // whether this is the late arrival of a notification's token; if so, Op is nil
	token    uint64
}

// engine serves up to slots operations at once.
type engine struct {
	slots, busy int
	ready       taskHeap
}

// taskHeap orders operations by due time, then by sequence number. It implements heap.Interface.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}
func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)   { *h = append(*h, x.(*task)) }
func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}

// Now implements software.Clock.
func (l *loop) Now() time.Duration { return l.now }

// Admit implements software.Clock. It never waits, because enqueuing takes no time. It fails if maxQueued operations
// are queued.
func (l *loop) Admit(*software.Stream) error {
	if l.queued < maxQueued {
		return nil
	}
	return device.Errorf("enqueue", l.dev.Info().ID, device.ErrOutOfMemory,
		"%d operations are queued: wait for some before enqueueing more", maxQueued)
}

// Enqueued implements software.Clock.
func (l *loop) Enqueued(o *software.Op) {
	t := &task{Op: o, seq: o.Seq, enqueued: l.now, cost: l.cost.duration(o, l.seed)}
	l.plan(t)
	o.Note = t
	l.queued++
	l.runnable = append(l.runnable, o.Stream)
	l.settle()
	l.dev.Wake()
}

// settle issues all operations that can be issued at this instant.
func (l *loop) settle() {
	for len(l.runnable) > 0 {
		s := l.runnable[0]
		l.runnable = l.runnable[1:]
		if o := s.Head(); o != nil {
			l.issue(o.Note.(*task))
		}
	}
	l.runnable = nil
}

// issue starts a stream's first operation, unless it was started before. The operation queues for its engine, waits for
// its event or gate, or ends at once if it takes no time.
func (l *loop) issue(t *task) {
	if t.issued {
		return
	}
	t.issued, t.start = true, l.now
	switch e := engineOf(t.Kind); {
	case e != NoEngine:
		t.due = l.now
		heap.Push(&l.engines[e].ready, t)
	case t.Blocked():
		l.blocked = append(l.blocked, t)
	default:
		l.carryOut(t)
	}
}

// Step implements software.Clock. It moves the clock to the next instant at which an operation ends. While Hold is in
// effect, it does so only for callers that wait for a stream. If no operation is in progress and the caller waits for
// an event or a stream, Step opens a gate. One stream can always progress: a wait needs a record that was enqueued
// before, so streams can't wait for each other in a circle.
func (l *loop) Step(w software.Waiter) bool {
	switch {
	case w != software.ForStream && l.holds > 0:
		return false
	case l.step():
		return true
	case w == software.ForCompletion:
		return false
	case !l.giveWay():
		panic("sim: work is queued that nothing can bring to an end")
	}
	return true
}

// step assigns ready operations to free engines and moves the clock to the next instant at which an operation ends. It
// returns false if no operation is in progress, so only the host can change the state.
func (l *loop) step() bool {
	l.dispatch()
	if len(l.running) == 0 {
		return false
	}
	l.now = l.running[0].due
	for len(l.running) > 0 && l.running[0].due <= l.now {
		l.end(heap.Pop(&l.running).(*task))
	}
	l.settle()
	return true
}

// dispatch starts the operation that has been ready longest on each free engine.
func (l *loop) dispatch() {
	for i := range l.engines {
		e := &l.engines[i]
		for e.busy < e.slots && len(e.ready) > 0 {
			t := heap.Pop(&e.ready).(*task)
			e.busy++
			t.start = l.now
			t.due = l.now + t.cost
			heap.Push(&l.running, t)
		}
	}
}

// end takes an operation off its engine, or delivers a late completion.
func (l *loop) end(t *task) {
	if t.late {
		l.queued--
		l.dev.Complete(t.token)
		return
	}
	l.engines[engineOf(t.Kind)].busy--
	l.carryOut(t)
}

// carryOut applies the effect of t, the first operation of its stream, and removes it from the queue.
func (l *loop) carryOut(t *task) {
	if err := l.do(t); err != nil {
		l.dev.Lose(t.Op, err)
		return
	}
	l.record(t)
	l.queued--
	l.runnable = append(l.runnable, t.Stream)
	recorded := t.Kind == software.Record
	l.dev.Finish(t.Op)
	if recorded {
		l.unblock()
	}
}

// unblock carries out the waits and gates that no longer block their streams.
func (l *loop) unblock() {
	for i := 0; i < len(l.blocked); {
		if t := l.blocked[i]; !t.Blocked() {
			l.blocked = slices.Delete(l.blocked, i, i+1)
			l.carryOut(t)
		} else {
			i++
		}
	}
}

// Opened implements software.Clock. A gate that opens before its stream reaches it never blocks the stream.
func (l *loop) Opened() {
	l.unblock()
	l.settle()
	l.dev.Wake()
}

// gate returns the blocking gate that was reached first, or nil if no gate blocks a stream.
func (l *loop) gate() *task {
	for _, t := range l.blocked {
		if t.Kind == software.Gate {
			return t
		}
	}
	return nil
}

// giveWay moves the clock to the end of the first gate's time and opens the gate. It returns false if no gate blocks a
// stream.
func (l *loop) giveWay() bool {
	first := l.gate()
	if first == nil {
		return false
	}
	l.now = max(l.now, first.start+gateTime)
	first.Gate.Opened = true
	l.unblock()
	l.settle()
	return true
}

// Polled implements software.Clock. It advances the clock by PollCost, unless Hold is in effect. If no operation is in
// progress, a gate that is ten seconds old opens, so a caller can't poll forever for work behind the gate.
func (l *loop) Polled() {
	if l.holds == 0 {
		l.advance(l.now + PollCost)
	}
	if first := l.gate(); first != nil && len(l.running) == 0 && first.start+gateTime <= l.now {
		l.giveWay()
	}
}

// advance runs the simulation until the clock reads end.
func (l *loop) advance(end time.Duration) {
	for !l.dev.Lost() {
		l.dispatch()
		if len(l.running) == 0 || l.running[0].due > end {
			l.now = end
			return
		}
		l.step()
	}
}

// Lost implements software.Clock. Queued operations never run.
func (l *loop) Lost() {
	for i := range l.engines {
		l.engines[i].ready = nil
	}
	l.running, l.blocked, l.runnable, l.queued = nil, nil, nil, 0
}

// Started implements software.Clock.
func (l *loop) Started(*software.Stream) {}

// Stop implements software.Clock.
func (l *loop) Stop() {}
