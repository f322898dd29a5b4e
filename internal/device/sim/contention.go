package sim

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// Concurrent operations may slow each other down: two copies share the bus and the host's memory, and a kernel and a
// copy share the device's memory. An operation then runs at the fraction of its full speed that the model gives. Its
// speed and its end change at the instant at which another engine starts or stops.

// service is the progress of an operation on its engine.
type service struct {
	left  float64 // nanoseconds left at full speed, as of since
	speed float64 // fraction of the full speed since then; 0 for operations without an engine
	since time.Duration
}

// to changes the speed at the instant now and returns the time at which the operation ends at that speed.
func (s *service) to(speed float64, now time.Duration) (due time.Duration) {
	s.left = max(s.left-float64(now-s.since)*s.speed, 0)
	s.speed, s.since = speed, now
	return now + time.Duration(math.Round(s.left/speed))
}

// contend sets the speed of each running operation. The clock moves only after dispatch, which ends with this call, so
// no change is missed. The caller holds the lock.
func (d *Device) contend() {
	if !d.cost.contended() {
		return
	}
	moved := false
	for _, o := range d.running {
		speed := d.speed(o.kind.engine())
		if o.service.speed == 0 || o.service.speed == speed {
			continue
		}
		o.due = o.service.to(speed, d.now)
		moved = true
	}
	if moved {
		heap.Init(&d.running)
	}
}

// contended reports whether operations slow each other down in this model.
func (m Model) contended() bool { return m.CopyShare != 0 || m.ComputeShare != 0 }

// speed returns the fraction of its full speed at which an engine works now. The caller holds the lock.
func (d *Device) speed(e Engine) float64 {
	in, out := d.engines[CopyInEngine].busy > 0, d.engines[CopyOutEngine].busy > 0
	switch {
	case e == ComputeEngine && (in || out):
		return cmp.Or(d.cost.ComputeShare, 1)
	case e != ComputeEngine && in && out:
		return cmp.Or(d.cost.CopyShare, 1)
	}
	return 1
}
