package software_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/history"
)

// gated is a device with streams that tests can stall.
type gated interface {
	device.Device
	device.Gater
}

// onEachDevice runs a test on each device whose memory uses this package.
func onEachDevice(t *testing.T, test func(t *testing.T, dev gated)) {
	t.Run("host", func(t *testing.T) {
		d, err := host.Open(host.Options{Cores: 1})
		if err != nil {
			t.Fatal(err)
		}
		test(t, d)
	})
	t.Run("sim", func(t *testing.T) {
		d, err := sim.Open(sim.Options{Cost: sim.Units(10 * time.Microsecond)})
		if err != nil {
			t.Fatal(err)
		}
		test(t, d)
	})
}

// poolModel is a simple model of the expected state of a pool.
type poolModel struct {
	*testing.T
	dev     gated
	pool    device.Pool
	streams []device.Stream
	open    []func() // opens the stream's gate; nil while the gate is open
	live    []device.Memory
	pending [][]device.Memory // freed on a stream with a closed gate
	used    int64
}

const modelLimit = 8 << 20

// TestPoolAgainstModel uses a pool at random and checks every result. Allocated memory is never allocated again. Only
// the freeing stream may reuse memory that is freed behind a closed gate. Used is the sum of the allocated blocks, and
// the limit is never exceeded.
func TestPoolAgainstModel(t *testing.T) {
	onEachDevice(t, func(t *testing.T, dev gated) {
		history.Run(t, history.Bounds{Min: 8}, func(h *history.History) map[string]int {
			m, rng := newPoolModel(t, dev), rand.New(h)
			for range 1500 {
				m.step(rng)
				m.checkStats()
			}
			m.finish()
			return nil
		})
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newPoolModel(t *testing.T, dev gated) *poolModel {
	m := &poolModel{T: t, dev: dev, open: make([]func(), 3), pending: make([][]device.Memory, 3)}
	var err error
	m.pool, err = dev.NewPool(device.PoolOptions{Limit: modelLimit, ReleaseThreshold: 3 << 20})
	m.ok(err)
	for range 3 {
		s, err := dev.NewStream("model")
		m.ok(err)
		m.streams = append(m.streams, s)
	}
	return m
}

func (p *poolModel) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *poolModel) step(rng *rand.Rand) {
	i := rng.IntN(len(p.streams))
	switch rng.IntN(10) {
	case 0: // closes or opens the gate
		if p.open[i] == nil {
			open, err := p.dev.Gate(p.streams[i])
			p.ok(err)
			p.open[i] = open
		} else {
			p.passGate(i)
		}
	case 1:
		if p.open[i] == nil {
			p.ok(p.streams[i].Synchronize())
		}
	case 2:
		p.ok(p.pool.Trim(rng.Int64N(modelLimit)))
	case 3, 4, 5:
		if len(p.live) > 0 {
			p.free(i, rng.IntN(len(p.live)))
		}
	default:
		p.alloc(i, 1+rng.IntN(1<<rng.IntN(23)))
	}
}

func (p *poolModel) alloc(i, length int) {
	got, err := p.pool.Alloc(p.streams[i], length)
	if errors.Is(err, device.ErrOutOfMemory) {
		return // the limit is reached, or a gate holds the free memory
	}
	p.ok(err)
	if got.Bytes != length || got.Addr%256 != 0 {
		p.Fatalf("asked for %d bytes, got %+v", length, got)
	}
	p.mustBeApart("live memory", got, p.live)
	for other, freed := range p.pending {
		if other != i {
			p.mustBeApart("memory that a gated stream has yet to free", got, freed)
		}
	}
	p.ok(p.streams[i].Fill(got.Slice(0, 1), byte(i)))
	p.live = append(p.live, got)
	p.used += blockBytes(got)
	// Memory that the stream has reused is no longer free on it.
	p.pending[i] = p.without(p.pending[i], got)
}

// free frees memory on any stream. All streams must have passed the Fill before, so that the free is ordered after it.
func (p *poolModel) free(i, which int) {
	for j := range p.streams {
		if j != i && p.open[j] != nil {
			p.passGate(j)
		}
		if j != i {
			p.ok(p.streams[j].Synchronize())
		}
	}
	gone := p.live[which]
	p.live[which] = p.live[len(p.live)-1]
	p.live = p.live[:len(p.live)-1]
	p.ok(p.pool.Free(p.streams[i], gone))
	p.used -= blockBytes(gone)
	if p.open[i] != nil {
		p.pending[i] = append(p.pending[i], gone)
	}
}

func (p *poolModel) passGate(i int) {
	p.open[i]()
	p.open[i] = nil
	p.ok(p.streams[i].Synchronize())
	p.pending[i] = nil
}

// finish frees everything and checks that no memory is left.
func (p *poolModel) finish() {
	for i := range p.streams {
		if p.open[i] != nil {
			p.passGate(i)
		}
	}
	for len(p.live) > 0 {
		p.free(0, 0)
	}
	p.ok(p.streams[0].Synchronize())
	p.ok(p.pool.Trim(0))
	p.checkStats()
	if st := p.stats(); st.Reserved != 0 {
		p.Errorf("all memory is free and trimmed: %+v", st)
	}
	for _, s := range p.streams {
		p.ok(s.Close())
	}
	p.ok(p.pool.Close())
}

func (p *poolModel) stats() device.PoolStats {
	p.Helper()
	st, err := p.pool.Stats()
	p.ok(err)
	return st
}

func (p *poolModel) checkStats() {
	p.Helper()
	st := p.stats()
	if st.Used != p.used || st.Reserved < st.Used || st.Reserved > modelLimit || st.UsedHigh < st.Used || st.ReservedHigh < st.Reserved {
		p.Fatalf("with %d bytes allocated and a limit of %d: %+v", p.used, modelLimit, st)
	}
}

func (p *poolModel) mustBeApart(what string, got device.Memory, all []device.Memory) {
	p.Helper()
	if len(p.without(all, got)) != len(all) {
		p.Fatalf("the pool allocated %+v, which overlaps %s, %+v", got, what, all)
	}
}

// without returns the elements of all that don't overlap got.
func (p *poolModel) without(all []device.Memory, got device.Memory) []device.Memory {
	var apart []device.Memory
	for _, one := range all {
		if one.Addr+uint64(one.Bytes) <= got.Addr || got.Addr+uint64(got.Bytes) <= one.Addr {
			apart = append(apart, one)
		}
	}
	return apart
}

// blockBytes returns the bytes that an allocation adds to Used.
func blockBytes(m device.Memory) int64 { return int64(m.Bytes+255) / 256 * 256 }
