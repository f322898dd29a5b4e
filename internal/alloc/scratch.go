package alloc

import (
	"errors"
	"fmt"

	"millrace/internal/device"
)

// Scratch says what NewScratch makes.
type Scratch struct {
	Limit int64 // bytes that it holds at most; at least 1; the device may round it up to its granularity
	Piece int   // bytes of the largest allocation, for a device without pools
}

// NewScratch makes a source of scratch memory in stream order, apart from dev's default pool: a pool that keeps what it
// holds. Giving memory back at every synchronization and asking for it again at the next batch is what a release
// threshold of 0 does, and it costs more than the kernels of a small batch. Trim gives memory back when the caller has
// time for it.
//
// A device that has no pools (device.ErrUnavailable) gets preallocated pieces instead, and Counted.Instead says why. Fails
// with device.ErrInvalid for a limit below 1.
func NewScratch(dev device.Device, c Scratch) (*Counted, error) {
	if c.Limit < 1 {
		// To a device 0 is no cap at all.
		return nil, device.Errorf("new scratch pool", dev.Info().ID, device.ErrInvalid,
			"a limit of %d bytes: give at least 1 (MILLRACE_SCRATCH_LIMIT)", c.Limit)
	}
	pool, err := dev.NewPool(device.PoolConfig{Limit: c.Limit, ReleaseThreshold: c.Limit})
	if errors.Is(err, device.ErrUnavailable) {
		scratch := Count(Limit(newPreallocated(dev, c.Piece, c.Limit), c.Limit))
		scratch.instead = err
		return scratch, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scratch pool of %d bytes: %w", c.Limit, err)
	}
	return Count(Limit(pool, c.Limit)), nil
}
