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

// leftovers is one object of each kind that the test doesn't close.
type leftovers struct {
	stream device.Stream
	pool   device.Pool
	memory device.Memory
	pooled device.Memory
	buffer device.HostBuffer
}

func (r *rig) leftovers() leftovers {
	r.Helper()
	var l leftovers
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

// wantLeaks closes the device and checks that the error names what was left open.
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
	r.leftovers()
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer", "4194304 bytes")
}

// closeWithWork checks that a device can be closed while it has work, and that it still names what was open.
func closeWithWork(r *rig) {
	l := r.leftovers()
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

// closeWakesWaiter checks that a goroutine that waits for a completion gets an error when the device is closed.
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

// manyObjects checks that repeatedly creating and closing objects leaves nothing behind. The rig's Close detects leaks.
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
