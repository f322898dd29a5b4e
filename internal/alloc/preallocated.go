package alloc

import (
	"errors"
	"sync"

	"millrace/internal/device"
)

// preallocated is a pool with one piece for each stream, allocated at the stream's first use. The order of the stream
// keeps two batches from using the piece at once.
type preallocated struct {
	dev   device.Device
	piece int   // bytes
	limit int64 // bytes of all pieces

	mu     sync.Mutex
	pieces map[device.Stream]device.Memory
	stats  device.PoolStats
}

func newPreallocated(dev device.Device, piece int, limit int64) *preallocated {
	return &preallocated{dev: dev, piece: piece, limit: limit, pieces: map[device.Stream]device.Memory{}}
}

// Alloc returns the start of the stream's piece. It fails with device.ErrOutOfMemory if bytes exceeds the size of a
// piece.
func (p *preallocated) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes > p.piece {
		return device.Memory{}, device.Errorf("allocate scratch", p.dev.Info().ID, device.ErrOutOfMemory,
			"%d bytes requested from a piece of %d bytes", bytes, p.piece)
	}
	m, ok := p.pieces[s]
	if !ok {
		if p.stats.Reserved+int64(p.piece) > p.limit {
			return device.Memory{}, device.Errorf("allocate scratch", p.dev.Info().ID, device.ErrOutOfMemory,
				"a piece of %d bytes for another stream, with %d of %d taken: raise MILLRACE_SCRATCH_LIMIT or lower MILLRACE_LANES",
				p.piece, p.stats.Reserved, p.limit)
		}
		var err error
		if m, err = p.dev.Alloc(p.piece); err != nil {
			return device.Memory{}, err
		}
		p.pieces[s] = m
		p.stats.Reserved += int64(p.piece)
		p.stats.ReservedHigh = p.stats.Reserved
	}
	p.stats.Used += int64(bytes)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return m.Slice(0, bytes), nil
}

// Free keeps the piece for the stream's next allocation.
func (p *preallocated) Free(_ device.Stream, m device.Memory) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Used -= int64(m.Bytes)
	return nil
}

// Trim does nothing: the pieces stay allocated for the next batch.
func (p *preallocated) Trim(int64) error { return nil }

// SetReleaseThreshold does nothing, because all memory is kept.
func (p *preallocated) SetReleaseThreshold(int64) error { return nil }

// Stats implements device.Pool.
func (p *preallocated) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, nil
}

// Close frees the pieces. They must not be in use.
func (p *preallocated) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for s, m := range p.pieces {
		errs = append(errs, p.dev.Free(m))
		delete(p.pieces, s)
	}
	return errors.Join(errs...)
}
