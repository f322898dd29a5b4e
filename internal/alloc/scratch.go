package alloc

import (
	"fmt"

	"millrace/internal/device"
)

// NewScratch makes a pool of dev's memory for scratch, apart from dev's default pool, that holds at most
// limit bytes (at least 1; the device may round it up to its granularity) and keeps what it holds: giving memory back at every synchronization and asking for it again
// at the next batch is what a release threshold of 0 does, and it costs more than the kernels of a small
// batch. Trim gives memory back when the caller has time for it. Fails with device.ErrInvalid for a limit below 1.
func NewScratch(dev device.Device, limit int64) (*Counted, error) {
	if limit < 1 {
		// To a device 0 is no cap at all.
		return nil, device.Errorf("new scratch pool", dev.Info().ID, device.ErrInvalid,
			"a limit of %d bytes: give at least 1 (MILLRACE_SCRATCH_LIMIT)", limit)
	}
	pool, err := dev.NewPool(device.PoolConfig{Limit: limit, ReleaseThreshold: limit})
	if err != nil {
		return nil, fmt.Errorf("scratch pool of %d bytes: %w", limit, err)
	}
	return Count(Limit(pool, limit)), nil
}
