package device

// PoolConfig bounds a pool.
type PoolConfig struct {
	// Limit caps the bytes the pool takes from the device; 0 means no cap but the device's memory. An
	// allocation that would pass it fails with ErrOutOfMemory. Devices may round it up to their
	// granularity (2 MiB on a GPU).
	Limit int64

	// ReleaseThreshold is how many unused bytes the pool keeps when the device synchronizes. With 0 it
	// gives memory back at every synchronization and pays for it again at the next allocation.
	ReleaseThreshold int64
}

// Pool hands out device memory in stream order. Methods are safe for concurrent use.
type Pool interface {
	// Alloc returns bytes (> 0) of memory, aligned to 256, that work enqueued on s from now on may use.
	// The address is known at once, though the memory may still be in use by earlier work of s. Fails
	// with ErrOutOfMemory, and then s is as it was.
	Alloc(s Stream, bytes int) (Memory, error)

	// Free gives m back once s gets here. Later allocations on s may have it at once; those on other
	// streams only after s has got here.
	Free(s Stream, m Memory) error

	// Trim gives memory back to the device that nobody uses, down to keep reserved bytes.
	Trim(keep int64) error

	// SetReleaseThreshold changes PoolConfig.ReleaseThreshold.
	SetReleaseThreshold(bytes int64) error

	// Stats reads the pool's counters.
	Stats() (PoolStats, error)

	// Close frees the pool once the last of its memory has been freed; no Alloc may follow. A second
	// Close returns nil.
	Close() error
}

// PoolStats counts a pool's bytes.
type PoolStats struct {
	Used         int64 // handed out now
	Reserved     int64 // taken from the device now
	UsedHigh     int64 // most handed out at once since the pool was made
	ReservedHigh int64 // most taken at once
}
