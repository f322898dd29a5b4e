package streams

import (
	"fmt"

	"millrace/internal/alloc"
	"millrace/internal/device"
)

// Footprint is an upper bound for the memory that a pipeline uses, in bytes.
type Footprint struct {
	Host    int64 // batch buffers; pinned if the device can pin memory
	Device  int64 // batch buffers on the device
	Scratch int64 // on the device; never more than Config.ScratchLimit
}

// admit calls Config.Admit before the pipeline allocates that memory.
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
