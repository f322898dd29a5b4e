package inflight

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/streams"
)

type paperMsg struct {
	Message
	data []byte
}

func (m *paperMsg) Data() []byte { return m.data }

func (m *paperMsg) Headers() nats.Header { return nil }

func TestBatcherDoesNotAllocate(t *testing.T) {
	const payloads = 4000
	p := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 2 * payloads})
	in := NewQueue(1)
	f := plenty().NewBatcher(p, in, time.Minute, NewWindow(1), nil)
	g := &Batch{}
	d := Delivery{Msg: &paperMsg{data: make([]byte, 100)}, Received: time.Now()}
	fill := func() float64 {
		b, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		defer g.Clear()
		g.Pack(b, d)
		allocs := testing.AllocsPerRun(payloads, func() {
			if !in.Put(t.Context(), d) {
				t.Fatal("there was no room")
			}
			if why, closed := f.place(b, g, <-in.ch, true); closed {
				t.Fatalf("the batch closed by %v", why)
			}
		})
		if b.Rows() != payloads+2 { // AllocsPerRun makes one more run to warm up
			t.Fatalf("%d payloads in the batch, want %d", b.Rows(), payloads+2)
		}
		return allocs
	}
	fill() // grows the group once
	if allocs := fill(); allocs != 0 {
		t.Errorf("%v allocations for each payload, want none", allocs)
	}
}
