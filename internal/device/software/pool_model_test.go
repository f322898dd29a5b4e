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

// onEachDevice runs a test on the devices that use this package for their memory.
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
	open    []func() // opens the stream's gate; nil while it is open
	live    []device.Memory
	pending [][]device.Memory // freed on a stream with a closed gate
	used    int64
}

const modelLimit = 8 << 20

// TestPoolAgainstModel uses a pool at random and checks every result. Live memory is never handed out again. Memory
// with a Free behind a closed gate goes to that stream only. Used is the sum of the allocated blocks, and the limit is
// never exceeded.
func TestPoolAgainstModel(t *testing.T) {
	onEachDevice(t, func(t *testing.T, dev gated) {
		history.Run(t, history.Bounds{Least: 8}, func(h *history.History) map[string]int {
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
	m.pool, err = dev.NewPool(device.PoolConfig{Limit: modelLimit, ReleaseThreshold: 3 << 20})
	m.ok(err)
	for range 3 {
		s, err := dev.NewStream("model")
		m.ok(err)
		m.streams = append(m.streams, s)
	}
	return m
}

func (m *poolModel) ok(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *poolModel) step(rng *rand.Rand) {
	i := rng.IntN(len(m.streams))
	switch rng.IntN(10) {
	case 0: // close or open the gate
		if m.open[i] == nil {
			open, err := m.dev.Gate(m.streams[i])
			m.ok(err)
			m.open[i] = open
		} else {
			m.passGate(i)
		}
	case 1:
		if m.open[i] == nil {
			m.ok(m.streams[i].Synchronize())
		}
	case 2:
		m.ok(m.pool.Trim(rng.Int64N(modelLimit)))
	case 3, 4, 5:
		if len(m.live) > 0 {
			m.free(i, rng.IntN(len(m.live)))
		}
	default:
		m.alloc(i, 1+rng.IntN(1<<rng.IntN(23)))
	}
}

func (m *poolModel) alloc(i, length int) {
	got, err := m.pool.Alloc(m.streams[i], length)
	if errors.Is(err, device.ErrOutOfMemory) {
		return // because of the limit, or of a fragment of it behind a gate
	}
	m.ok(err)
	if got.Bytes != length || got.Addr%256 != 0 {
		m.Fatalf("asked for %d bytes, got %+v", length, got)
	}
	m.mustBeApart("live memory", got, m.live)
	for other, freed := range m.pending {
		if other != i {
			m.mustBeApart("memory that a gated stream has yet to free", got, freed)
		}
	}
	m.ok(m.streams[i].Fill(got.Slice(0, 1), byte(i)))
	m.live = append(m.live, got)
	m.used += blockBytes(got)
	// Memory that the stream has reused is no longer free on it.
	m.pending[i] = m.without(m.pending[i], got)
}

// free frees on any stream. All streams must have passed the Fill before, so that there is an order.
func (m *poolModel) free(i, which int) {
	for j := range m.streams {
		if j != i && m.open[j] != nil {
			m.passGate(j)
		}
		if j != i {
			m.ok(m.streams[j].Synchronize())
		}
	}
	gone := m.live[which]
	m.live[which] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
	m.ok(m.pool.Free(m.streams[i], gone))
	m.used -= blockBytes(gone)
	if m.open[i] != nil {
		m.pending[i] = append(m.pending[i], gone)
	}
}

func (m *poolModel) passGate(i int) {
	m.open[i]()
	m.open[i] = nil
	m.ok(m.streams[i].Synchronize())
	m.pending[i] = nil
}

// finish frees everything and checks that nothing is left.
func (m *poolModel) finish() {
	for i := range m.streams {
		if m.open[i] != nil {
			m.passGate(i)
		}
	}
	for len(m.live) > 0 {
		m.free(0, 0)
	}
	m.ok(m.streams[0].Synchronize())
	m.ok(m.pool.Trim(0))
	m.checkStats()
	if st := m.stats(); st.Reserved != 0 {
		m.Errorf("all is free and trimmed: %+v", st)
	}
	for _, s := range m.streams {
		m.ok(s.Close())
	}
	m.ok(m.pool.Close())
}

func (m *poolModel) stats() device.PoolStats {
	m.Helper()
	st, err := m.pool.Stats()
	m.ok(err)
	return st
}

func (m *poolModel) checkStats() {
	m.Helper()
	st := m.stats()
	if st.Used != m.used || st.Reserved < st.Used || st.Reserved > modelLimit || st.UsedHigh < st.Used || st.ReservedHigh < st.Reserved {
		m.Fatalf("with %d bytes out and a limit of %d: %+v", m.used, modelLimit, st)
	}
}

func (m *poolModel) mustBeApart(what string, got device.Memory, all []device.Memory) {
	m.Helper()
	if len(m.without(all, got)) != len(all) {
		m.Fatalf("%+v was handed out: it overlaps %s, %+v", got, what, all)
	}
}

// without returns the elements of all that don't overlap got.
func (m *poolModel) without(all []device.Memory, got device.Memory) []device.Memory {
	var apart []device.Memory
	for _, one := range all {
		if one.Addr+uint64(one.Bytes) <= got.Addr || got.Addr+uint64(got.Bytes) <= one.Addr {
			apart = append(apart, one)
		}
	}
	return apart
}

// blockBytes returns the size with which an allocation counts in Used.
func blockBytes(m device.Memory) int64 { return int64(m.Bytes+255) / 256 * 256 }
