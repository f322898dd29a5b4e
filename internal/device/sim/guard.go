package sim

import (
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// guard is the device.Guard of every host buffer of a device.
type guard struct{ dev *Device }

// Access implements device.Guard.
func (g guard) Access(mem []byte) {
	if len(mem) == 0 {
		return
	}
	g.dev.mu.Lock()
	defer g.dev.mu.Unlock()
	lo := software.Address(mem)
	hi := lo + uint64(len(mem))
	g.dev.eachUse(func(o *op, u use) {
		if at := software.Address(u.data); at < hi && lo < at+uint64(len(u.data)) {
			panic(fmt.Sprintf("sim: the host looks at a buffer of %d bytes before the %v has completed", len(mem), o))
		}
	})
}

// checkUnused panics in the invariants build if queued work uses the freed memory.
func (d *Device) checkUnused(call string, freed *life) {
	if !device.Invariants {
		return
	}
	d.eachUse(func(o *op, u use) {
		if u.life == freed {
			panic(fmt.Sprintf("sim: %s of memory of which the %v still uses %d bytes", call, o, len(u.data)))
		}
	})
}

// eachUse calls fn for every memory access of operations that are not yet carried out. The caller holds the lock.
func (d *Device) eachUse(fn func(o *op, u use)) {
	for _, s := range d.streams {
		for _, o := range s.queue {
			for _, u := range o.uses {
				if len(u.data) > 0 {
					fn(o, u)
				}
			}
		}
	}
}
