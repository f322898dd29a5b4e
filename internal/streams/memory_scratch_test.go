package streams

import (
	"errors"
	"testing"

	"millrace/internal/device"
)

func scratchOf(t *testing.T, d device.Device) *ScratchPool {
	t.Helper()
	p, err := NewScratch(d, ScratchOptions{Limit: 64 << 20, Piece: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Scratch from a pool and preallocated scratch can be written and read in stream order. Both are counted, and Close
// frees both.
func TestScratchIsMemory(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		for name, from := range map[string]device.Device{"pool": d, "preallocated": poolless{d}} {
			t.Run(name, func(t *testing.T) {
				s, p := newStream(t, d), scratchOf(t, from)
				b, err := d.AllocHost(1 << 10)
				if err != nil {
					t.Fatal(err)
				}
				for i, bytes := range []int{1 << 10, 8 << 20, 4 << 10} {
					m, err := p.Alloc(s, bytes)
					if err != nil {
						t.Fatal(err)
					}
					ok(t, s.Fill(m, byte(i+1)))
					ok(t, s.CopyOut(b, m.Slice(bytes-b.Len(), b.Len())))
					if used := poolStats(t, p).Used; used < int64(bytes) {
						t.Errorf("%d bytes used with %d allocated", used, bytes)
					}
					ok(t, p.Free(s, m))
					ok(t, s.Synchronize())
					if got := b.Bytes()[7]; got != byte(i+1) {
						t.Errorf("allocation %d held %d", i, got)
					}
				}
				if n, left := p.Allocations(), poolStats(t, p).Used; n != 3 || left != 0 {
					t.Errorf("%d allocations and %d bytes used, want 3 and none", n, left)
				}
				ok(t, p.Close())
				ok(t, d.FreeHost(b))
			})
		}
	})
}

// Preallocated scratch keeps its pieces between two batches.
func TestPiecesAreKept(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		s, p := newStream(t, d), scratchOf(t, poolless{d})
		m, err := p.Alloc(s, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		ok(t, p.Free(s, m))
		ok(t, s.Synchronize())
		if kept := poolStats(t, p).Reserved; kept != 8<<20 {
			t.Errorf("%d bytes are kept, want a piece of %d", kept, 8<<20)
		}
		ok(t, p.Close())
	})
}

// A piece has exactly the configured length.
func TestPieceIsBounded(t *testing.T) {
	d := openHost(t)
	s, p := newStream(t, d), scratchOf(t, poolless{d})
	if _, err := p.Alloc(s, 8<<20+1); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("got %v, want %v", err, device.ErrOutOfMemory)
	}
	ok(t, p.Close())
}

// Pieces of all streams count towards the limit. A stream gets no piece once the limit is reached.
func TestPiecesAreWithinTheLimit(t *testing.T) {
	d := openHost(t)
	p, err := NewScratch(poolless{d}, ScratchOptions{Limit: 12 << 20, Piece: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	first, second := newStream(t, d), newStream(t, d)
	m, err := p.Alloc(first, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Alloc(second, 1<<10); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("a second piece of 8 MiB within 12 MiB: got %v, want %v", err, device.ErrOutOfMemory)
	}
	ok(t, p.Free(first, m))
	ok(t, p.Close())
}

// poolless is a device without memory pools.
type poolless struct{ device.Device }

func (p poolless) NewPool(device.PoolOptions) (device.Pool, error) {
	return nil, device.Errorf("new pool", p.Info().ID, device.ErrUnavailable, "it has none")
}

// On a device without pools, preallocated scratch replaces the pool, and Instead returns the reason.
func TestScratchWithoutPools(t *testing.T) {
	d := poolless{openHost(t)}
	p, err := NewScratch(d, ScratchOptions{Limit: 64 << 20, Piece: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(p.Instead(), device.ErrUnavailable) {
		t.Errorf("Instead returns %v, want an error that wraps ErrUnavailable", p.Instead())
	}
	s := newStream(t, d)
	m, err := p.Alloc(s, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, p.Free(s, m))
	ok(t, p.Close())
}
