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

// unclosed is one object of each kind that nothing closes at the end of the test.
type unclosed struct {
	stream device.Stream
	event  device.Event
	pool   device.Pool
	buffer device.HostBuffer
}

func (r *rig) unclosed(name string, flags device.EventFlags, bytes int) unclosed {
	r.Helper()
	s, noStream := r.dev.NewStream(name)
	e, noEvent := r.dev.NewEvent(flags)
	p, noPool := r.dev.NewPool(keepAll)
	b, noBuffer := r.dev.AllocHost(bytes)
	r.ok(noStream, noEvent, noPool, noBuffer)
	return unclosed{s, e, p, b}
}

// leftovers is unclosed with memory, and with memory from the pool.
type leftovers struct {
	unclosed
	memory, pooled device.Memory
}

func (r *rig) leftovers() leftovers {
	r.Helper()
	l := leftovers{unclosed: r.unclosed("forgotten", 0, 4<<20)}
	var err error
	l.memory, err = r.dev.Alloc(4 << 20)
	r.ok(err)
	l.pooled = r.take(l.pool, l.stream, piece)
	return l
}

// wantLeaks closes the device and checks that the error names the open objects.
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
	r.ok(r.dev.Close())
}

func leaksNamed(r *rig) {
	r.leftovers()
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer", "4194304 bytes")
}

// closeWithWork checks that a device can be closed while it has work, and that its error still names the open objects.
func closeWithWork(r *rig) {
	l := r.leftovers()
	for i := range 25 {
		r.ok(l.stream.CopyIn(l.memory, l.buffer), l.stream.Fill(l.pooled, byte(i)), l.stream.CopyOut(l.buffer, l.memory))
		r.ok(l.stream.Notify(uint64(i)))
	}
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer")
	r.fails("fill after close", l.stream.Fill(l.memory, 1), device.ErrClosed)
}

// closeWakesWaiter checks that a goroutine that waits for a completion gets an error when the device is closed.
func closeWakesWaiter(r *rig) {
	ended := make(chan error)
	go func() {
		_, err := r.dev.WaitCompletion(context.Background())
		ended <- err
	}()
	r.ok(r.dev.Close())
	r.fails("wait on a device that closes", <-ended, device.ErrClosed)
}

// manyObjects checks that repeatedly creating and closing objects leaves nothing behind. The rig's Close detects leaks.
func manyObjects(r *rig) {
	for i := range 50 {
		o := r.unclosed(fmt.Sprintf("stream-%d", i), device.EventFlags(i)%4, 4096) // each combination of flags
		m := r.take(o.pool, o.stream, 4096)
		r.ok(o.stream.CopyIn(m, o.buffer), o.stream.Record(o.event), o.pool.Free(o.stream, m))
		r.ok(o.pool.Close(), o.event.Close(), o.stream.Close(), r.dev.FreeHost(o.buffer))
	}
}
