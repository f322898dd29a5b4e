package software_test

import (
	"errors"
	"testing"

	"millrace/internal/device"
)

const mib = 1 << 20

// TestAFreeThatFailsChangesNothing checks that memory stays allocated if its free can't be enqueued.
func TestAFreeThatFailsChangesNothing(t *testing.T) {
	onEachDevice(t, func(t *testing.T, dev gated) {
		m := newPoolModel(t, dev)
		closed, err := dev.NewStream("closed")
		m.ok(err)
		m.ok(closed.Close())
		mem, err := m.pool.Alloc(m.streams[0], 5*mib)
		m.ok(err)
		if err := m.pool.Free(closed, mem); !errors.Is(err, device.ErrClosed) {
			t.Errorf("a free on a closed stream: got error %v, want %v", err, device.ErrClosed)
		}
		if got, err := m.pool.Alloc(m.streams[1], 5*mib); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("allocated memory was allocated again: %v, %v", got, err)
		}
		m.ok(m.pool.Free(m.streams[0], mem))
		m.finish()
		m.ok(dev.Close())
	})
}

// TestPoolKeepsItsBounds checks that a pool never reserves more than its limit. It releases idle memory, but keeps
// unused memory up to the threshold.
func TestPoolKeepsItsBounds(t *testing.T) {
	onEachDevice(t, func(t *testing.T, dev gated) {
		m := newPoolModel(t, dev)
		s := m.streams[0]
		var all []device.Memory
		for range 4 {
			mem, err := m.pool.Alloc(s, 2*mib)
			m.ok(err)
			all = append(all, mem)
		}
		if got, err := m.pool.Alloc(s, 1); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("a full pool gave %v, %v", got, err)
		}
		open, err := dev.Gate(s)
		m.ok(err)
		for _, mem := range all {
			m.ok(m.pool.Free(s, mem))
		}
		m.ok(m.streams[1].Synchronize()) // s has reached no free yet
		if st := m.stats(); st.Reserved != 8*mib || st.Used != 0 {
			t.Errorf("before the stream reached the frees: %+v", st)
		}
		open()
		m.ok(s.Synchronize())
		if st := m.stats(); st.Reserved != 4*mib {
			t.Errorf("idle, with a threshold of 3 MiB: %+v", st)
		}
		m.finish()
		m.ok(dev.Close())
	})
}
