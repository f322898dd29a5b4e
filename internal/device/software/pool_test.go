package software_test

import (
	"errors"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// counter is a stream. Its value is the number of operations that it has carried out.
type counter uint64

func (c *counter) Passed(operation uint64) bool { return uint64(*c) >= operation }

const mib = 1 << 20

// newPool creates a pool of 4 MiB in a space of 8 MiB.
func newPool(t *testing.T) (*software.Space, *software.Pool) {
	t.Helper()
	space := software.NewSpace("test", 8*mib, 0)
	p, err := space.NewPool(device.PoolConfig{Limit: 4 * mib, ReleaseThreshold: 4 * mib})
	if err != nil {
		t.Fatal(err)
	}
	return space, p
}

func take(t *testing.T, p *software.Pool, s software.Stream, bytes int) device.Memory {
	t.Helper()
	m, err := p.Alloc(s, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// behind returns an enqueue function that adds operation number n.
func behind(n uint64) func() (uint64, error) { return func() (uint64, error) { return n, nil } }

func TestFreedMemoryGoesToOtherStreamsOnceItsStreamHasPassed(t *testing.T) {
	_, p := newPool(t)
	first, second := new(counter), new(counter)
	m := take(t, p, first, 4*mib)
	if err := p.Free(first, m, behind(7)); err != nil {
		t.Fatal(err)
	}
	*first = 6
	if got, err := p.Alloc(second, 4*mib); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("another stream got %v (%v) before the first had passed the free", got, err)
	}
	*first = 7
	if got := take(t, p, second, 4*mib); got != m {
		t.Errorf("another stream got %v, want %v", got, m)
	}
}

// If the free can't be enqueued, because of an error or a panic, the memory stays allocated.
func TestAFreeThatFailsChangesNothing(t *testing.T) {
	_, p := newPool(t)
	s := new(counter)
	m := take(t, p, s, 3*mib)
	full := errors.New("the stream was closed")
	if err := p.Free(s, m, func() (uint64, error) { return 0, full }); !errors.Is(err, full) {
		t.Errorf("got error %v, want %v", err, full)
	}
	func() {
		defer func() { _ = recover() }()
		_ = p.Free(s, m, func() (uint64, error) { panic("misuse") })
	}()
	if got, err := p.Alloc(s, 3*mib); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("memory that is handed out was handed out again: %v, %v", got, err)
	}
	if err := p.Free(s, m, behind(1)); err != nil {
		t.Errorf("the free that succeeds: %v", err)
	}
	if err := p.Free(s, m, behind(2)); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("a second free: got error %v, want %v", err, device.ErrInvalid)
	}
}

// All memory that a pool has taken is mapped, but only allocated memory is an allocation.
func TestFindKnowsAllocationsInPools(t *testing.T) {
	space, p := newPool(t)
	s := new(counter)
	m := take(t, p, s, 1000)
	inside := m.Slice(300, 700)
	if mem, base, ok := space.Find(inside); !ok || base != m.Addr || len(mem) != 700 || cap(mem) != 700 {
		t.Errorf("found %d bytes of capacity %d in the allocation at %#x (%v), want 700, 700 and %#x", len(mem), cap(mem), base, ok, m.Addr)
	}
	for name, wrong := range map[string]device.Memory{
		"beyond its end": {Addr: m.Addr, Bytes: 1001}, "behind it": {Addr: m.Addr + 1024, Bytes: 1}, "nowhere": {Addr: 1, Bytes: 1},
	} {
		if _, _, ok := space.Find(wrong); ok {
			t.Errorf("memory %s is found", name)
		}
	}
	if err := p.Free(s, m, behind(1)); err != nil {
		t.Fatal(err)
	}
	_, _, found := space.Find(inside)
	if _, mapped := space.Bytes(inside); found || !mapped {
		t.Errorf("memory that was freed is found: %v, and mapped: %v", found, mapped)
	}
}

// A pool never takes more than its limit, and releases idle memory only as long as unused memory of the threshold
// remains.
func TestPoolKeepsItsBounds(t *testing.T) {
	space := software.NewSpace("test", 64*mib, 0)
	p, err := space.NewPool(device.PoolConfig{Limit: 9*mib + 100, ReleaseThreshold: 3 * mib})
	if err != nil {
		t.Fatal(err)
	}
	s := new(counter)
	var all []device.Memory
	for range 4 {
		all = append(all, take(t, p, s, 2*mib))
	}
	all = append(all, take(t, p, s, mib+100)) // all remaining memory
	for i, m := range all {
		if err := p.Free(s, m, behind(uint64(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	p.Release() // no stream has passed anything
	if st, err := p.Stats(); err != nil || st.Reserved != 9*mib+256 || st.Used != 0 {
		t.Errorf("with nothing passed: %+v, %v", st, err)
	}
	*s = counter(len(all))
	p.Release()
	if st, err := p.Stats(); err != nil || st.Reserved != 4*mib {
		t.Errorf("idle, with a threshold of 3 MiB: %+v, %v", st, err)
	}
	p.Close()
	if gone := p.Release(); !gone {
		t.Error("a closed pool without memory in use is not gone")
	}
}
