package sim_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

const mib = 1 << 20

func take(r *rig, p device.Pool, s device.Stream, bytes int) device.Memory {
	r.Helper()
	m, err := p.Alloc(s, bytes)
	r.ok(err)
	if m.Bytes != bytes || m.Addr%256 != 0 {
		r.Fatalf("memory %+v for %d bytes", m, bytes)
	}
	return m
}

func stats(r *rig, p device.Pool, want device.PoolStats) {
	r.Helper()
	got, err := p.Stats()
	r.ok(err)
	if got != want {
		r.Errorf("stats %+v, want %+v", got, want)
	}
}

// TestPoolStreamOrder checks that the freeing stream can reuse memory at once. Other streams can reuse it after the
// freeing stream has reached the free.
func TestPoolStreamOrder(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	a, b := r.stream("a"), r.stream("b")
	p := r.pool(device.PoolOptions{Limit: 1024})
	m := take(r, p, a, 1024)
	shut := r.gate(a)
	r.ok(p.Free(a, m))

	_, err := p.Alloc(b, 1024)
	r.is(err, device.ErrOutOfMemory) // stream a has not reached the free
	again := take(r, p, a, 1024)
	if again != m {
		t.Errorf("the freeing stream got %+v, want %+v at once", again, m)
	}
	r.ok(p.Free(a, again))

	part := take(r, p, a, 256) // only stream a can still use the remaining bytes
	_, err = p.Alloc(b, 512)
	r.is(err, device.ErrOutOfMemory)
	r.ok(p.Free(a, part))
	shut()
	r.ok(p.Free(b, take(r, p, b, 1024)))
}

// TestPoolReuseKeepsOrder checks memory that is reused before the earlier work has run. Each user must see its own
// data.
func TestPoolReuseKeepsOrder(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	s, p := r.stream("s"), r.pool(device.PoolOptions{Limit: 256})
	out := [2]device.HostBuffer{r.host(256), r.host(256)}
	for i := range out {
		m := take(r, p, s, 256)
		r.ok(s.Fill(m, byte('a'+i)))
		r.ok(s.CopyOut(out[i], m))
		r.ok(p.Free(s, m))
	}
	r.ok(s.Synchronize())
	for i := range out {
		for at, got := range out[i].Bytes() {
			if got != byte('a'+i) {
				t.Fatalf("byte %d of copy %d is %q", at, i, got)
			}
		}
	}
}

// TestPoolJoinsNeighbours checks that small free pieces are merged into one large piece.
func TestPoolJoinsNeighbours(t *testing.T) {
	r := open(t, sim.Options{})
	s, p := r.stream("s"), r.pool(device.PoolOptions{Limit: 1024})
	var pieces []device.Memory
	for range 4 {
		pieces = append(pieces, take(r, p, s, 200))
	}
	_, err := p.Alloc(s, 1)
	r.is(err, device.ErrOutOfMemory)
	for _, i := range []int{1, 3, 0} {
		r.ok(p.Free(s, pieces[i]))
	}
	_, err = p.Alloc(s, 768) // the third piece lies between the free ones
	r.is(err, device.ErrOutOfMemory)
	half := take(r, p, s, 512)
	if half.Addr != pieces[0].Addr {
		t.Errorf("512 bytes at %#x, want the first two pieces at %#x", half.Addr, pieces[0].Addr)
	}
	r.ok(p.Free(s, half))
	r.ok(p.Free(s, pieces[2]))
	r.ok(p.Free(s, take(r, p, s, 1024)))
}

func TestPoolCounters(t *testing.T) {
	r := open(t, sim.Options{})
	s, p := r.stream("s"), r.pool(device.PoolOptions{ReleaseThreshold: 4 * mib})
	m, big := take(r, p, s, 1000), take(r, p, s, 5*mib)
	stats(r, p, device.PoolStats{
		Used: 1024 + 5*mib, Reserved: 8 * mib, UsedHigh: 1024 + 5*mib, ReservedHigh: 8 * mib,
	})
	r.ok(p.Free(s, big))
	r.ok(s.Synchronize()) // without the 6 MiB chunk, less than 4 MiB would be unused
	stats(r, p, device.PoolStats{Used: 1024, Reserved: 8 * mib, UsedHigh: 1024 + 5*mib, ReservedHigh: 8 * mib})
	r.ok(p.Trim(2 * mib))
	stats(r, p, device.PoolStats{Used: 1024, Reserved: 2 * mib, UsedHigh: 1024 + 5*mib, ReservedHigh: 8 * mib})
	r.ok(p.Free(s, m))
	r.ok(p.Trim(1))
	stats(r, p, device.PoolStats{Reserved: 2 * mib, UsedHigh: 1024 + 5*mib, ReservedHigh: 8 * mib})
	r.ok(p.Trim(0))
	stats(r, p, device.PoolStats{UsedHigh: 1024 + 5*mib, ReservedHigh: 8 * mib})
}

// TestPoolMakesRoom checks that, at the limit, unused chunks that are too small are released for a larger one.
func TestPoolMakesRoom(t *testing.T) {
	r := open(t, sim.Options{})
	s, p := r.stream("s"), r.pool(device.PoolOptions{Limit: 4 * mib, ReleaseThreshold: 4 * mib})
	first, second := take(r, p, s, 2*mib), take(r, p, s, 2*mib)
	r.ok(p.Free(s, first))
	r.ok(p.Free(s, second))
	stats(r, p, device.PoolStats{Reserved: 4 * mib, UsedHigh: 4 * mib, ReservedHigh: 4 * mib})
	r.ok(p.Free(s, take(r, p, s, 4*mib))) // no chunk has 4 MiB, so the pool replaces both
	stats(r, p, device.PoolStats{Reserved: 4 * mib, UsedHigh: 4 * mib, ReservedHigh: 4 * mib})
}

// TestPoolSharesTheDevice checks that a pool's memory counts against the device's memory.
func TestPoolSharesTheDevice(t *testing.T) {
	r := open(t, sim.Options{Memory: 3 * mib})
	s, p := r.stream("s"), r.pool(device.PoolOptions{})
	r.memory(2 * mib)
	m := take(r, p, s, mib)
	_, err := r.dev.Alloc(1)
	r.is(err, device.ErrOutOfMemory)
	_, err = p.Alloc(s, 1)
	r.is(err, device.ErrOutOfMemory)
	r.ok(p.Free(s, m))
	r.ok(p.Trim(0))
	r.memory(mib)
}

// TestPoolClosesAfterItsLastMemory checks that a pool that is closed while it has allocated memory disappears when that
// memory is freed.
func TestPoolClosesAfterItsLastMemory(t *testing.T) {
	r := open(t, sim.Options{Memory: mib})
	s, p := r.stream("s"), r.pool(device.PoolOptions{})
	m := take(r, p, s, mib)
	r.ok(p.Close())
	r.ok(p.Close())
	_, err := r.dev.Alloc(mib)
	r.is(err, device.ErrOutOfMemory)
	shut := r.gate(s)
	r.ok(p.Free(s, m))
	_, err = r.dev.Alloc(mib)
	r.is(err, device.ErrOutOfMemory)
	shut()
	r.memory(mib)
}
