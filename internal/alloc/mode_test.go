package alloc_test

import (
	"errors"
	"testing"

	"millrace/internal/alloc"
	"millrace/internal/device"
)

func scratchOf(t *testing.T, d device.Device, mode alloc.Mode) *alloc.Counted {
	t.Helper()
	p, err := alloc.NewScratch(d, alloc.Scratch{Limit: 64 << 20, Mode: mode, Piece: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Memory of every mode can be written and read in stream order, is counted, and is freed by Close.
func TestModes(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		for _, mode := range []alloc.Mode{alloc.Kept, alloc.Released, alloc.Synchronous, alloc.Preallocated} {
			t.Run(mode.String(), func(t *testing.T) {
				s, p := newStream(t, d), scratchOf(t, d, mode)
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
						t.Errorf("%d bytes used with %d handed out", used, bytes)
					}
					ok(t, p.Free(s, m))
					ok(t, s.Synchronize())
					if got := b.Bytes()[7]; got != byte(i+1) {
						t.Errorf("allocation %d held %d", i, got)
					}
				}
				if n, left := p.Allocations(), p.Outstanding(); n != 3 || left != 0 {
					t.Errorf("%d allocations, %d outstanding, want 3 and none", n, left)
				}
				ok(t, p.Close())
				ok(t, d.FreeHost(b))
			})
		}
	})
}

// The modes differ in what they keep between two batches.
func TestWhatModesKeep(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		for mode, keeps := range map[alloc.Mode]bool{alloc.Kept: true, alloc.Released: false, alloc.Synchronous: false, alloc.Preallocated: true} {
			s, p := newStream(t, d), scratchOf(t, d, mode)
			m, err := p.Alloc(s, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			ok(t, p.Free(s, m))
			ok(t, s.Synchronize())
			if kept := poolStats(t, p).Reserved; (kept > 0) != keeps {
				t.Errorf("%v keeps %d bytes", mode, kept)
			}
			ok(t, p.Close())
		}
	})
}

// A free in the synchronous mode waits for the work before it.
func TestSynchronousFreeWaits(t *testing.T) {
	d := openHost(t)
	s, p := newStream(t, d), scratchOf(t, d, alloc.Synchronous)
	m, err := p.Alloc(s, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.NewEvent(0)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, s.Fill(m, 1))
	ok(t, s.Record(e))
	ok(t, p.Free(s, m))
	if done, err := e.Done(); !done || err != nil {
		t.Errorf("the memory was freed before the stream was done with it (%v)", err)
	}
	ok(t, e.Close())
	ok(t, p.Close())
}

// A piece has exactly the configured length.
func TestPieceIsBounded(t *testing.T) {
	d := openHost(t)
	s, p := newStream(t, d), scratchOf(t, d, alloc.Preallocated)
	if _, err := p.Alloc(s, 8<<20+1); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("got %v, want %v", err, device.ErrOutOfMemory)
	}
	ok(t, p.Close())
}

// Pieces of all streams count towards the limit: a stream that comes too late gets none.
func TestPiecesAreWithinTheLimit(t *testing.T) {
	d := openHost(t)
	p, err := alloc.NewScratch(d, alloc.Scratch{Limit: 12 << 20, Mode: alloc.Preallocated, Piece: 8 << 20})
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

func (d poolless) NewPool(device.PoolConfig) (device.Pool, error) {
	return nil, device.Errorf("new pool", d.Info().ID, device.ErrUnavailable, "it has none")
}

// On a device without pools, preallocated scratch replaces a kept pool, and Instead returns the reason. Nothing
// replaces the other modes, because they exist only to be measured.
func TestScratchWithoutPools(t *testing.T) {
	d := poolless{openHost(t)}
	p, err := alloc.NewScratch(d, alloc.Scratch{Limit: 64 << 20, Piece: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(p.Instead(), device.ErrUnavailable) {
		t.Errorf("it says %v of why it is preallocated", p.Instead())
	}
	s := newStream(t, d)
	m, err := p.Alloc(s, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, p.Free(s, m))
	ok(t, p.Close())
	if _, err := alloc.NewScratch(d, alloc.Scratch{Limit: 64 << 20, Mode: alloc.Released}); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, device.ErrUnavailable)
	}
}
