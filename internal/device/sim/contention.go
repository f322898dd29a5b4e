package sim

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// Operations that run at once may slow each other down: two copies share the bus and the host's memory, a kernel
// and a copy the device's memory. An operation in service then gets on at the share of its full speed that the
// model says, from the very instant at which another engine starts or stops. Its end moves with that.

// service is how far an operation has come on its engine.
type service struct {
	left  float64 // nanoseconds still to do at full speed, as of since
	speed float64 // share of the full speed since then; 0 for what no engine has
	since time.Duration
}

// to changes the speed at the instant now and returns when the operation ends if it stays like that.
func (s *service) to(speed float64, now time.Duration) (due time.Duration) {
	s.left = max(s.left-float64(now-s.since)*s.speed, 0)
	s.speed, s.since = speed, now
	return now + time.Duration(math.Round(s.left/speed))
}

// contend gives each operation in service the speed that it has beside what runs now. The clock only moves after
// a call of dispatch, which ends with this one, so no change is missed. The lock is held.
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

// contended says whether anything slows anything down.
func (m Model) contended() bool { return m.CopyShare != 0 || m.ComputeShare != 0 }

// speed is the share of its full speed at which work on an engine gets on now. The lock is held.
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
