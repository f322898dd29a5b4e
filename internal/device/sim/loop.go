package sim

import (
	"container/heap"
	"time"

	"millrace/internal/device"
)

// op is one operation of a stream.
type op struct {
	seq      uint64
	kind     Kind
	stream   *Stream
	name     string // the kernel of a launch
	bytes    int
	enqueued time.Duration
	start    time.Duration
	cost     time.Duration // time on its engine
	due      time.Duration // while waiting for an engine: when it became ready; in service: when it ends
	uses     []use
	token    uint64 // token of a notify
	mark     *mark  // mark of a record or a wait
	opened   bool   // a gate has been opened
	pool     *Pool  // pool of a free

	// effect changes memory and state when the operation ends. An error loses the device.
	effect func() error
}

// opHeap orders operations by due, then by sequence. It implements heap.Interface.
type opHeap []*op

func (h opHeap) Len() int { return len(h) }
func (h opHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}
func (h opHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *opHeap) Push(x any)   { *h = append(*h, x.(*op)) }
func (h *opHeap) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}

// engine serves as many operations at once as it has slots.
type engine struct {
	slots, busy int
	ready       opHeap
}

// loop is the state of the simulation, guarded by the device's lock.
type loop struct {
	now      time.Duration
	seq      uint64 // number of the last operation enqueued
	queued   int    // operations not yet carried out
	streams  []*Stream
	runnable []*Stream // streams that may be able to run their first operation
	engines  [engineCount]engine
	running  opHeap // operations on an engine, and completions in progress, ordered by end
	promised int    // completions in progress
	gates    []*op  // gates that stop a stream now
}

func newLoop(computeSlots int) loop {
	var l loop
	l.engines[CopyInEngine].slots = 1
	l.engines[CopyOutEngine].slots = 1
	l.engines[ComputeEngine].slots = computeSlots
	return l
}

// step assigns ready operations to free engines and moves the clock to the next instant at which an operation ends. It
// returns false if no operation is in progress: then only the host can change the state.
func (d *Device) step() bool {
	if d.Lost() {
		return false
	}
	d.dispatch()
	if len(d.running) == 0 {
		return false
	}
	d.now = d.running[0].due
	for len(d.running) > 0 && d.running[0].due <= d.now {
		d.end(heap.Pop(&d.running).(*op))
	}
	d.settle()
	return true
}

// advance runs the simulation until the clock reads t.
func (d *Device) advance(t time.Duration) {
	for !d.Lost() {
		d.dispatch()
		if len(d.running) == 0 || d.running[0].due > t {
			d.now = t
			return
		}
		d.step()
	}
}

// drive runs the simulation until done returns true or the device is lost. When no operation is in progress, only gates
// are left to wait for, and they give way. Streams can't wait for each other in a circle, because a wait needs a record
// enqueued before it, so one of them always moves.
func (d *Device) drive(done func() bool) {
	for !d.Lost() && !done() {
		if !d.step() && !d.giveWay() {
			panic("sim: work is queued that nothing can bring to an end")
		}
	}
}

// dispatch gives each free engine the operation that has been ready longest.
func (d *Device) dispatch() {
	for i := range d.engines {
		e := &d.engines[i]
		for e.busy < e.slots && len(e.ready) > 0 {
			o := heap.Pop(&e.ready).(*op)
			e.busy++
			o.start = d.now
			o.due = d.now + o.cost
			heap.Push(&d.running, o)
		}
	}
}

// end takes an operation off its engine, or lets a completion arrive.
func (d *Device) end(o *op) {
	if o.kind == Notify {
		d.promised--
		d.complete(o.token)
		return
	}
	d.engines[o.kind.engine()].busy--
	d.carryOut(o)
}

// lossKind returns the kind of loss that o causes. A payload can only be responsible for a kernel's loss.
func (o *op) lossKind() error {
	if o.kind == Launch {
		return device.ErrKernelFault
	}
	return device.ErrLost
}

// carryOut applies the effect of o, the first operation of its stream, and removes it from the queue.
func (d *Device) carryOut(o *op) {
	if err := o.touch(); err != nil {
		d.lose(o, err)
		return
	}
	if o.effect != nil {
		if err := o.effect(); err != nil {
			d.lose(o, err)
			return
		}
	}
	s := o.stream
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.issued = false
	s.done = o.seq
	d.queued--
	d.runnable = append(d.runnable, s)
	d.trace.add(o, d.now)
	switch o.kind {
	case Record:
		d.reach(o.mark)
	case Free:
		o.pool.retire()
	}
}

// settle issues every operation that can be issued at this instant.
func (d *Device) settle() {
	for len(d.runnable) > 0 {
		s := d.runnable[0]
		d.runnable = d.runnable[1:]
		if len(s.queue) > 0 && !s.issued {
			d.issue(s.queue[0])
		}
	}
	d.runnable = nil
}

// issue starts a stream's first operation: it goes to its engine, waits for its event or gate, or ends at once if it
// takes no time.
func (d *Device) issue(o *op) {
	o.stream.issued = true
	o.start = d.now
	switch {
	case o.kind.engine() != NoEngine:
		o.due = d.now
		heap.Push(&d.engines[o.kind.engine()].ready, o)
	case o.kind == Wait && !o.mark.reached:
		o.mark.waiting = append(o.mark.waiting, o)
	case o.kind == Gate && !o.opened:
		d.gates = append(d.gates, o)
	default:
		d.carryOut(o)
	}
}

// abandon drops all queued operations of a lost device.
func (d *Device) abandon() {
	for _, s := range d.streams {
		s.queue = nil
	}
	for i := range d.engines {
		d.engines[i].ready = nil
	}
	d.running, d.gates, d.runnable, d.queued, d.promised = nil, nil, nil, 0, 0
}

func (o *op) String() string {
	what := o.kind.String()
	if o.name != "" {
		what += " of " + o.name
	}
	return what + " on stream " + o.stream.name
}
