package sim

import (
	"slices"
	"time"

	"millrace/internal/device"
)

// gateTime is the device time after which a gate gives way: see device.Gater.
const gateTime = 10 * time.Second

// Gate implements device.Gater. A gate stays closed while other work is in progress, however long that takes. It gives
// way ten seconds of virtual time after its stream reached it, and only to a caller that has nothing else to wait for.
// Synchronize and Close make it give way at once, Event.Done after enough polls, and WaitCompletion never: it blocks
// until open is called.
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

// open opens a gate now. A gate that its stream has not reached yet won't stop the stream.
func (d *Device) open(o *op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.opened = true
	if i := slices.Index(d.gates, o); i >= 0 {
		d.pass(i)
		d.wake()
	}
}

// pass lets the stream at gate i continue. The caller holds the lock.
func (d *Device) pass(i int) {
	o := d.gates[i]
	d.gates = slices.Delete(d.gates, i, i+1)
	d.carryOut(o)
	d.settle()
}

// giveWay moves the clock to the end of the gate that was reached first and opens it. It returns false if no gate is
// closed. The caller holds the lock.
func (d *Device) giveWay() bool {
	if d.Lost() || len(d.gates) == 0 {
		return false
	}
	// Gates are kept in the order in which their streams reached them, so the first one ends first.
	d.now = max(d.now, d.gates[0].start+gateTime)
	d.pass(0)
	return true
}

// gateOverdue reports whether a gate has been closed for ten seconds. The caller holds the lock.
func (d *Device) gateOverdue() bool {
	return len(d.gates) > 0 && d.gates[0].start+gateTime <= d.now
}
