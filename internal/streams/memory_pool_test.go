package streams

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

func newScratch(t *testing.T, d device.Device, limit int64) *ScratchPool {
	t.Helper()
	p, err := NewScratch(d, ScratchOptions{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ok(t, p.Close()) })
	return p
}

func poolStats(t *testing.T, p device.Pool) device.PoolStats {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The pool keeps memory through synchronizations until Trim, and serves the next allocation from that memory.
func TestScratchKeepsWhatItHolds(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		s, p := newStream(t, d), newScratch(t, d, 64<<20)
		m, err := p.Alloc(s, 10<<20)
		if err != nil {
			t.Fatal(err)
		}
		ok(t, p.Free(s, m))
		ok(t, s.Synchronize())
		kept := poolStats(t, p)
		if kept.Used != 0 || kept.Reserved < 10<<20 {
			t.Errorf("after a synchronization %d bytes are used and %d reserved, want none and at least %d", kept.Used, kept.Reserved, 10<<20)
		}
		m, err = p.Alloc(s, 10<<20)
		if err != nil {
			t.Fatal(err)
		}
		if now := poolStats(t, p); now.Reserved != kept.Reserved {
			t.Errorf("the second allocation took %d more bytes from the device", now.Reserved-kept.Reserved)
		}
		ok(t, p.Free(s, m))
		ok(t, s.Synchronize())
		ok(t, p.Trim(0))
		if now := poolStats(t, p); now.Reserved != 0 || now.UsedHigh < 10<<20 {
			t.Errorf("after Trim %d bytes are reserved, with a high water of %d", now.Reserved, now.UsedHigh)
		}
	})
}

func TestScratchIsCapped(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		s, p := newStream(t, d), newScratch(t, d, 4<<20)
		if _, err := p.Alloc(s, 4<<20+1); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("Alloc past the limit = %v, want out of memory", err)
		}
		m, err := p.Alloc(s, 3<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Alloc(s, 1<<20+1); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("Alloc beyond the remaining bytes = %v, want out of memory", err)
		}
		ok(t, p.Free(s, m))
		m, err = p.Alloc(s, 4<<20) // the stream that freed memory reuses it at once
		ok(t, err)
		ok(t, p.Free(s, m))
		if p.Allocations() != 2 || p.Refused() != 2 {
			t.Errorf("%d allocations, %d refused; want 2 and 2", p.Allocations(), p.Refused())
		}
	})
}

func TestScratchWantsALimit(t *testing.T) {
	d := openSim(t, sim.Options{})
	for _, limit := range []int64{0, -1} {
		if _, err := NewScratch(d, ScratchOptions{Limit: limit}); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("NewScratch with a limit of %d = %v, want invalid", limit, err)
		}
	}
}

// ledger is a pool that fails some calls and records the allocations. It fails the test if the limit is exceeded or if
// a call breaks the rules.
type ledger struct {
	device.Pool
	t      *testing.T
	limit  int64
	refuse func() bool

	mu   sync.Mutex
	held int64
	next uint64
}

var errWill = errors.New("would not")

func (l *ledger) Alloc(_ device.Stream, bytes int) (device.Memory, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse() {
		return device.Memory{}, errWill
	}
	if l.held += int64(bytes); l.held > l.limit {
		l.t.Errorf("%d bytes are held, beyond the limit of %d", l.held, l.limit)
	}
	l.next += 1 << 32
	return device.Memory{Addr: l.next, Bytes: bytes}, nil
}

func (l *ledger) Free(_ device.Stream, m device.Memory) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse() {
		return errWill
	}
	if l.held -= int64(m.Bytes); l.held < 0 {
		l.t.Errorf("%d bytes are held", l.held)
	}
	return nil
}

// Many streams allocate and free at random through a ScratchPool on a pool that fails at random. The limit is never
// exceeded, failed calls change nothing, and all memory is available at the end.
func TestLimitAndCountUnderLoad(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			const limit = 1000
			refusals := rand.New(rand.NewPCG(seed, 0)) // guarded by the ledger's mutex
			well := false
			l := &ledger{t: t, limit: limit, refuse: func() bool { return !well && refusals.IntN(4) == 0 }}
			p := countPool(l, limit)
			var users sync.WaitGroup
			for i := range uint64(4) {
				users.Go(func() { useAtRandom(t, p, rand.New(rand.NewPCG(seed, 1+i))) })
			}
			users.Wait()
			well = true
			if l.held != 0 {
				t.Errorf("%d bytes are held at the end", l.held)
			}
			if _, err := p.Alloc(nil, limit); err != nil {
				t.Errorf("with nothing held: %v", err)
			}
		})
	}
}

// useAtRandom makes a few hundred calls and frees everything that it allocated.
func useAtRandom(t *testing.T, p device.Pool, random *rand.Rand) {
	var mine []device.Memory
	for range 500 {
		if len(mine) < 20 && random.IntN(2) == 0 {
			m, err := p.Alloc(nil, 1+random.IntN(300))
			if err == nil {
				mine = append(mine, m)
			} else if !errors.Is(err, errWill) && !errors.Is(err, device.ErrOutOfMemory) {
				t.Error(err)
			}
		} else if len(mine) > 0 {
			if i := len(mine) - 1; p.Free(nil, mine[i]) == nil {
				mine = mine[:i]
			}
		}
	}
	for len(mine) > 0 {
		if i := len(mine) - 1; p.Free(nil, mine[i]) == nil {
			mine = mine[:i]
		}
	}
}

// The device refuses an invalid size, and the size doesn't count towards the limit.
func TestLimitLeavesBadSizesToTheDevice(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		s, p := newStream(t, d), newScratch(t, d, 4096)
		for _, n := range []int{0, -1, -1 << 40} {
			if _, err := p.Alloc(s, n); !errors.Is(err, device.ErrInvalid) {
				t.Errorf("Alloc of %d bytes = %v, want invalid", n, err)
			}
		}
		m, err := p.Alloc(s, 4096)
		if err != nil {
			t.Fatalf("the whole limit: %v", err)
		}
		ok(t, p.Free(s, m))
	})
}
