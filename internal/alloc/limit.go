package alloc

import (
	"sync"

	"millrace/internal/device"
)

// Limit caps the bytes of pool that callers hold at once: memory that was allocated and whose Free has not been
// enqueued yet. It refuses an allocation before the device is called. PoolConfig.Limit, the device's own cap, limits
// what the pool takes from the device; a pool needs both.
func Limit(pool device.Pool, bytes int64) device.Pool {
	return &limited{Pool: pool, limit: bytes}
}

type limited struct {
	device.Pool
	limit int64

	mu   sync.Mutex
	held int64
}

// Alloc returns device.ErrOutOfMemory if the allocation would exceed the limit.
func (l *limited) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	if bytes <= 0 {
		return l.Pool.Alloc(s, bytes) // the device reports the error, and nothing is held
	}
	held, ok := l.hold(bytes)
	if !ok {
		return device.Memory{}, device.Errorf("allocate scratch", "", device.ErrOutOfMemory,
			"%d bytes, with %d of %d held: raise MILLRACE_SCRATCH_LIMIT or lower MILLRACE_BATCH_BYTES", bytes, held, l.limit)
	}
	m, err := l.Pool.Alloc(s, bytes)
	if err != nil {
		l.release(bytes)
	}
	return m, err
}

// hold reserves bytes within the limit, if they fit. The result held is the amount reserved before.
func (l *limited) hold(bytes int) (held int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held = l.held
	if int64(bytes) > l.limit-held {
		return held, false
	}
	l.held += int64(bytes)
	return held, true
}

// Free releases the reservation after the pool has accepted m.
func (l *limited) Free(s device.Stream, m device.Memory) error {
	if err := l.Pool.Free(s, m); err != nil {
		return err
	}
	l.release(m.Bytes)
	return nil
}

func (l *limited) release(bytes int) {
	l.mu.Lock()
	l.held -= int64(bytes)
	l.mu.Unlock()
}
