package streams

import (
	"fmt"

	"millrace/internal/alloc"
	"millrace/internal/device"
)

// Footprint is the memory that a pipeline takes at most, in bytes.
type Footprint struct {
	Host    int64 // for batches, pinned where the device can
	Device  int64 // for batches, on the device
	Scratch int64 // on the device; never more than Config.ScratchLimit
}

// admit asks Config.Admit, before any of that memory is taken.
func (p *Pipeline) admit(slab alloc.Layout, largest device.Needs) error {
	if p.cfg.Admit == nil {
		return nil
	}
	f := Footprint{
		Host:    slab.Total(),
		Device:  int64(slab.Buffers) * int64(slab.InBytes+slab.OutBytes),
		Scratch: min(int64(slab.Buffers)*int64(largest.Scratch), p.cfg.ScratchLimit),
	}
	if err := p.cfg.Admit(f); err != nil {
		return fmt.Errorf("memory for %d batches: %w", slab.Buffers, err)
	}
	return nil
}
