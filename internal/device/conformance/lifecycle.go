package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"millrace/internal/device"
)

var lifecycleTests = []test{
	{"LeaksNamed", leaksNamed},
	{"WorkInFlight", closeWithWork},
	{"WaiterWakes", closeWakesWaiter},
	{"ManyObjects", manyObjects},
}

// litter is one of everything, which nobody will close.
type litter struct {
	stream device.Stream
	pool   device.Pool
	memory device.Memory
	pooled device.Memory
	buffer device.HostBuffer
}

func (r *rig) litter() litter {
	r.Helper()
	var l litter
	var err error
	l.stream, err = r.dev.NewStream("forgotten")
	r.ok("new stream", err)
	l.pool, err = r.dev.NewPool(keepAll)
	r.ok("new pool", err)
	l.memory, err = r.dev.Alloc(4 << 20)
	r.ok("alloc", err)
	l.buffer, err = r.dev.AllocHost(4 << 20)
	r.ok("alloc host", err)
	_, err = r.dev.NewEvent(0)
	r.ok("new event", err)
	l.pooled = r.take(l.pool, l.stream, piece)
	return l
}

// wantLeaks closes the device and checks that it names what was left.
func (r *rig) wantLeaks(want ...string) {
	r.Helper()
	var leak *device.LeakError
	if err := r.dev.Close(); !errors.As(err, &leak) {
		r.Fatalf("close with objects still open: got %v, want a LeakError", err)
	}
	all := strings.Join(leak.Open, "\n")
	for _, part := range want {
		if !strings.Contains(all, part) {
			r.Errorf("the LeakError does not name %q: %q", part, leak.Open)
		}
	}
	r.ok("second close", r.dev.Close())
}

func leaksNamed(r *rig) {
	r.litter()
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer", "4194304 bytes")
}

// closeWithWork: a device closes in the middle of its work without harm, and still names what was open.
func closeWithWork(r *rig) {
	l := r.litter()
	for i := range 100 {
		r.ok("copy in", l.stream.CopyIn(l.memory, l.buffer))
		r.ok("fill", l.stream.Fill(l.pooled, byte(i)))
		r.ok("copy out", l.stream.CopyOut(l.buffer, l.memory))
		r.ok("notify", l.stream.Notify(uint64(i)))
	}
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer")
	if err := l.stream.Fill(l.memory, 1); !errors.Is(err, device.ErrClosed) {
		r.Errorf("fill after close: got %v, want one that wraps %q", err, device.ErrClosed)
	}
}

// closeWakesWaiter: who waits for a completion that will not come hears that the device was closed.
func closeWakesWaiter(r *rig) {
	ended := make(chan error)
	go func() {
		_, err := r.dev.WaitCompletion(context.Background())
		ended <- err
	}()
	r.ok("close", r.dev.Close())
	if err := <-ended; !errors.Is(err, device.ErrClosed) {
		r.Errorf("wait on a device that closes: got %v, want one that wraps %q", err, device.ErrClosed)
	}
}

// manyObjects: making and closing again and again leaves nothing behind. The rig's own Close sees to that.
func manyObjects(r *rig) {
	for i := range 50 {
		s, err := r.dev.NewStream(fmt.Sprintf("stream-%d", i))
		r.ok("new stream", err)
		e, err := r.dev.NewEvent(device.EventFlags(i) % 4) // each combination of flags
		r.ok("new event", err)
		p, err := r.dev.NewPool(keepAll)
		r.ok("new pool", err)
		b, err := r.dev.AllocHost(4096)
		r.ok("alloc host", err)
		m := r.take(p, s, 4096)
		r.ok("copy in", s.CopyIn(m, b))
		r.ok("record", s.Record(e))
		r.ok("pool free", p.Free(s, m))
		r.ok("close pool", p.Close())
		r.ok("close event", e.Close())
		r.ok("close stream", s.Close())
		r.ok("free host", r.dev.FreeHost(b))
	}
}
