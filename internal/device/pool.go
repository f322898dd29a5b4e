package device

// PoolConfig limits a pool.
type PoolConfig struct {
	// Limit is the maximum number of bytes that the pool takes from the device; 0 means no limit but the device's
	// memory. An allocation that would exceed it fails with ErrOutOfMemory. Devices may round it up to their
	// granularity (2 MiB on a GPU).
	Limit int64

	// ReleaseThreshold is the number of unused bytes that the pool keeps when the device synchronizes. With 0, the pool
	// returns memory at every synchronization and pays for it again at the next allocation.
	ReleaseThreshold int64
}

// Pool allocates device memory in stream order. Its methods are safe for concurrent use.
type Pool interface {
	// Alloc returns bytes (> 0) of memory, aligned to 256, that work enqueued on s from now on may use. The address is
	// known at once, although earlier work on s may still use the memory. Alloc fails with ErrOutOfMemory and then
	// leaves s unchanged.
	Alloc(s Stream, bytes int) (Memory, error)

	// Free frees m when s reaches this point. Later allocations on s may get the memory at once, those on other streams
	// only after s has reached this point.
	Free(s Stream, m Memory) error

	// Trim returns unused memory to the device, until at most keep bytes are reserved.
	Trim(keep int64) error

	// SetReleaseThreshold changes PoolConfig.ReleaseThreshold.
	SetReleaseThreshold(bytes int64) error

	// Stats returns the pool's counters.
	Stats() (PoolStats, error)

	// Close frees the pool once the last of its memory has been freed. No Alloc may follow. A second Close returns nil.
	Close() error
}

// PoolStats holds a pool's counters, in bytes.
type PoolStats struct {
	Used         int64 // currently allocated
	Reserved     int64 // currently taken from the device
	UsedHigh     int64 // maximum of Used since the pool was created
	ReservedHigh int64 // maximum of Reserved
}
