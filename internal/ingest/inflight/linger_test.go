package inflight

import (
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// lateDevice is a device with an adjustable clock.
type lateDevice struct {
	device.Device
	late time.Duration
}

func (d *lateDevice) Now() time.Duration { return d.Device.Now() + d.late }

// TestLingerCountsFromTheOldestPayload checks a batch whose oldest payload has already waited for longer than the
// linger time. The batch must not wait for another payload.
func TestLingerCountsFromTheOldestPayload(t *testing.T) {
	t.Parallel()
	d := &lateDevice{Device: hostDevice(t)}
	p := testPipeline(t, d, streams.Options{Lanes: 1, BatchPayloads: 10})
	others := NewWindow(1)
	for range 4 {
		others.Enter() // an idle lane must not close the batch
	}
	const linger = 2 * patience
	f := plenty().NewBatcher(p, NewQueue(0), linger, others, nil)
	b, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	g, closed := &Batch{}, make(chan streams.CloseReason, 1)
	g.Pack(b, Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()})
	d.late = linger
	go func() { closed <- f.Fill(b, g) }()
	select {
	case why := <-closed:
		if why != streams.ClosedByLinger {
			t.Errorf("closed by %v", why)
		}
	case <-time.After(patience / 2):
		f.in.Close() // ends Fill
		<-closed
		t.Error("the linger begins with the first look at the batch")
	}
}
