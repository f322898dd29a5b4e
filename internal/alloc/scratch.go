package alloc

import (
	"errors"
	"fmt"

	"millrace/internal/device"
)

// Scratch configures NewScratch.
type Scratch struct {
	Limit int64 // maximum number of bytes held; at least 1; the device may round it up to its granularity
	Piece int   // size of the largest allocation, in bytes; used on a device without pools
}

// NewScratch creates a stream-ordered source of scratch memory, separate from dev's default pool: a pool that keeps its
// memory. With a release threshold of 0 the pool would return memory at every synchronization and request it again for
// the next batch, which costs more than the kernels of a small batch. Call Trim to return memory.
//
// If the device has no pools (device.ErrUnavailable), NewScratch falls back to preallocated pieces, and Counted.Instead
// returns the reason. NewScratch fails with device.ErrInvalid if the limit is below 1.
func NewScratch(dev device.Device, c Scratch) (*Counted, error) {
	if c.Limit < 1 {
		// For a device, 0 means no limit.
		return nil, device.Errorf("new scratch pool", dev.Info().ID, device.ErrInvalid,
			"a limit of %d bytes: give at least 1 (MILLRACE_SCRATCH_LIMIT)", c.Limit)
	}
	pool, err := dev.NewPool(device.PoolConfig{Limit: c.Limit, ReleaseThreshold: c.Limit})
	if errors.Is(err, device.ErrUnavailable) {
		scratch := NewCountedPool(newPreallocated(dev, c.Piece, c.Limit), c.Limit)
		scratch.instead = err
		return scratch, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scratch pool of %d bytes: %w", c.Limit, err)
	}
	return NewCountedPool(pool, c.Limit), nil
}
