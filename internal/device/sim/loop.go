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
	cost     time.Duration // time on its engine, at full speed
	due      time.Duration // while it waits for an engine: when it became ready; in service: when it ends
	service  service       // while an engine has it
	arriving bool          // on its way to its engine, until due: see Model.Dispatch
	uses     []use
	token    uint64 // of a notify
	mark     *mark  // of a record or a wait
	opened   bool   // of a gate
	pool     *Pool  // of a free

	// effect is what the operation does to memory and state at its end. An error loses the device.
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

// loop is the state of the simulation. The device's lock guards it.
type loop struct {
	now      time.Duration
	seq      uint64 // of the last operation enqueued
	queued   int    // operations not yet carried out
	streams  []*Stream
	runnable []*Stream // streams whose head may be able to move
	engines  [engineCount]engine
	running  opHeap // in service on an engine or on the way to one, and completions under way, by when they end
	promised int    // completions under way
	gates    []*op  // gates that hold a stream up now
}

func newLoop(computeSlots int) loop {
	var l loop
	l.engines[CopyInEngine].slots = 1
	l.engines[CopyOutEngine].slots = 1
	l.engines[ComputeEngine].slots = computeSlots
	return l
}

// step lets free engines take ready operations and moves the clock to the next instant at which
// something ends. It returns false if nothing is under way: then only the host can change anything.
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

// drive runs the simulation until done or the device is lost. When nothing is under way the gates are
// all that is left to wait for, and they give way. A wait needs a record enqueued before it, so streams
// cannot wait for each other in a circle: one of the two always moves.
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
			o.service = service{left: float64(o.cost), speed: 1, since: d.now}
			heap.Push(&d.running, o)
		}
	}
	d.contend()
}

// end is the instant at which an operation gets to its engine or leaves it, or a completion comes.
func (d *Device) end(o *op) {
	switch {
	case o.kind == Notify:
		d.promised--
		d.complete(o.token)
	case o.arriving:
		o.arriving = false
		d.arrive(o)
	default:
		d.engines[o.kind.engine()].busy--
		o.service = service{}
		d.carryOut(o)
	}
}

// send brings o to its engine, at once unless what it follows is more recent than Model.Dispatch.
func (d *Device) send(o *op) {
	follows := max(o.enqueued, o.stream.awaited)
	if o.stream.engine != o.kind.engine() {
		follows = max(follows, o.stream.served)
	}
	if o.due = follows + d.cost.Dispatch; o.due <= d.now {
		d.arrive(o)
		return
	}
	o.arriving = true
	heap.Push(&d.running, o)
}

// arrive puts o in the queue of its engine.
func (d *Device) arrive(o *op) {
	o.due = d.now
	heap.Push(&d.engines[o.kind.engine()].ready, o)
}

// lossKind is the kind of loss that o causes: what a kernel does may be a payload's fault.
func (o *op) lossKind() error {
	if o.kind == Launch {
		return device.ErrKernelFault
	}
	return device.ErrLost
}

// carryOut lets o, the head of its stream, take effect and leave the queue.
func (d *Device) carryOut(o *op) {
	if err := o.touch(); err != nil {
		d.lose(o.lossKind(), o.String(), "%v", err)
		return
	}
	if o.effect != nil {
		if err := o.effect(); err != nil {
			d.lose(o.lossKind(), o.String(), "%v", err)
			return
		}
	}
	s := o.stream
	switch {
	case o.kind.engine() != NoEngine:
		s.engine, s.served = o.kind.engine(), d.now
	case o.kind == Wait:
		s.awaited = max(s.awaited, o.mark.at)
	}
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

// settle issues what can be issued at this instant.
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

// issue brings the head of a stream on its way: to its engine, to what it waits for, or, if it takes no
// time, to its end.
func (d *Device) issue(o *op) {
	o.stream.issued = true
	o.start = d.now
	switch {
	case o.kind.engine() != NoEngine:
		d.send(o)
	case o.kind == Wait && !o.mark.reached:
		o.mark.waiting = append(o.mark.waiting, o)
	case o.kind == Gate && !o.opened:
		d.gates = append(d.gates, o)
	default:
		d.carryOut(o)
	}
}

// abandon drops everything queued: the device is lost.
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
