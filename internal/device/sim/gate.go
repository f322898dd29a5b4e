package sim

import (
	"slices"
	"time"

	"millrace/internal/device"
)

// gateTime is the device time after which a gate gives way: see device.Gater.
const gateTime = 10 * time.Second

// Gate implements device.Gater. While other work is under way a gate stays shut, however long that work
// takes. It gives way, ten seconds of virtual time after its stream got there, only to a caller that has
// nothing else left to wait for: at once to Synchronize and Close, to Event.Done after enough polls, and
// never to WaitCompletion, which blocks until open is called.
func (d *Device) Gate(s device.Stream) (open func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	mine, err := d.stream("gate", s)
	if err != nil {
		return nil, err
	}
	o := &op{kind: Gate}
	mine.enqueue(o)
	return func() { d.open(o) }, nil
}

// open opens a gate now. A gate that its stream has not reached yet will not hold it up.
func (d *Device) open(o *op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.opened = true
	if i := slices.Index(d.gates, o); i >= 0 {
		d.pass(i)
		d.wake()
	}
}

// pass lets the stream at gate i go on. The lock is held.
func (d *Device) pass(i int) {
	o := d.gates[i]
	d.gates = slices.Delete(d.gates, i, i+1)
	d.carryOut(o)
	d.settle()
}

// giveWay moves the clock to the end of the gate that has been shut longest and opens it. It returns
// false if no gate is shut. The lock is held.
func (d *Device) giveWay() bool {
	if d.Lost() || len(d.gates) == 0 {
		return false
	}
	// Gates are kept in the order in which their streams got there, so the first one ends first.
	d.now = max(d.now, d.gates[0].start+gateTime)
	d.pass(0)
	return true
}

// gateOverdue says whether a gate has been shut for its ten seconds. The lock is held.
func (d *Device) gateOverdue() bool {
	return len(d.gates) > 0 && d.gates[0].start+gateTime <= d.now
}
