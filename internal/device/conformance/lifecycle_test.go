package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/internal/device"
)

var infoTests = []test{
	{"Described", described},
	{"Clock", clock},
	{"Names", names},
	{"HostBuffer", hostBuffer},
}

func described(r *rig) {
	info := r.dev.Info()
	if info.Kind == "" || info.ID == "" || info.Name == "" {
		r.Errorf("kind, ID and name must not be empty: %+v", info)
	}
	if info.Memory <= 0 || info.Units <= 0 {
		r.Errorf("memory and units must be above zero: %+v", info)
	}
	if again := r.dev.Info(); again != info {
		r.Errorf("info changed from %+v to %+v", info, again)
	}
	if err := r.dev.Err(); err != nil {
		r.Errorf("a fresh device has the error %v", err)
	}
}

// clock checks that Now never decreases and that Epoch never changes.
func clock(r *rig) {
	epoch := r.dev.Epoch()
	if epoch.IsZero() || epoch.After(time.Now().Add(time.Hour)) {
		r.Errorf("the device can't have started at epoch %v", epoch)
	}
	last := r.dev.Now()
	if last < 0 {
		r.Errorf("now is %v, before the epoch", last)
	}
	for range 1000 {
		now := r.dev.Now()
		if now < last {
			r.Fatalf("now went back from %v to %v", last, now)
		}
		last = now
	}
	if again := r.dev.Epoch(); !again.Equal(epoch) {
		r.Errorf("the epoch moved from %v to %v", epoch, again)
	}
}

func names(r *rig) {
	if got := r.kernel("crc32c", nil).Name(); got != "crc32c" {
		r.Errorf("kernel's name is %q, want crc32c", got)
	}
}

// hostBuffer checks that slices share the buffer's memory and kind.
func hostBuffer(r *rig) {
	b := r.host(4096, 1)
	if b.Len() != 4096 || len(b.Bytes()) != 4096 {
		r.Errorf("asked for 4096 bytes, got length %d and %d bytes", b.Len(), len(b.Bytes()))
	}
	if k := b.Kind(); k != device.Pinned && k != device.Pageable {
		r.Errorf("kind is %v, want pinned or pageable", k)
	}
	part := b.Slice(100, 50)
	if part.Len() != 50 || part.Kind() != b.Kind() {
		r.Errorf("a slice has length %d and kind %v, want 50 and %v", part.Len(), part.Kind(), b.Kind())
	}
	paint(part.Bytes(), 2)
	if mem := b.Bytes(); mem[99] != 1 || mem[100] != 2 || mem[149] != 2 || mem[150] != 1 {
		r.Errorf("a slice of 100:150 wrote elsewhere: %v around its ends", []byte{mem[99], mem[100], mem[149], mem[150]})
	}
}

var checkTests = []test{
	{"Works", checkWorks},
	{"Busy", checkBusy},
	{"NoTime", checkNoTime},
}

// checkPatience is the time within which a working device completes a Check.
const checkPatience = 30 * time.Second

// checkWorks checks that repeated checks of a working device succeed, and that its other work continues.
func checkWorks(r *rig) {
	s, m, b := r.stream("s"), r.memory(4096), r.host(4096, 7)
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	for range 10 {
		r.ok(s.CopyIn(m, b), r.dev.Check(ctx))
	}
	r.ok(s.Fill(m, 8), s.CopyOut(b, m), s.Synchronize())
	r.wantAll("what was copied around the checks", b, 8)
}

// checkBusy checks that a device with stalled streams is not lost, whether or not it answers.
func checkBusy(r *rig) {
	s := r.stream("s")
	open := r.gate(s)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := r.dev.Check(ctx); err != nil && !errors.Is(err, device.ErrNotReady) {
		r.Errorf("check of a busy device: got %v, want none or one that wraps %q", err, device.ErrNotReady)
	}
	r.ok(r.dev.Err())
	open()
	r.sync(s)
	later, cancelLater := context.WithTimeout(context.Background(), checkPatience)
	defer cancelLater()
	r.ok(r.dev.Check(later))
}

// checkNoTime checks that a Check with an ended context doesn't mark the device as lost.
func checkNoTime(r *rig) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.dev.Check(ctx); !errors.Is(err, device.ErrNotReady) || errors.Is(err, device.ErrLost) {
		r.Errorf("check without time: got %v, want one that wraps %q", err, device.ErrNotReady)
	}
	r.ok(r.dev.Err())
}

var lifecycleTests = []test{
	{"WorkInFlight", closeWithWork},
	{"WaiterWakes", closeWakesWaiter},
	{"ManyObjects", manyObjects},
}

// unclosed has one object of each kind. Nothing closes the objects at the end of the test.
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

// leftovers is unclosed with device memory and memory from the pool.
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

// closeWithWork checks that a device with unfinished work can be closed, and that its error still names the open
// objects.
func closeWithWork(r *rig) {
	l := r.leftovers()
	for i := range 25 {
		r.ok(l.stream.CopyIn(l.memory, l.buffer), l.stream.Fill(l.pooled, byte(i)), l.stream.CopyOut(l.buffer, l.memory))
		r.ok(l.stream.Notify(uint64(i)))
	}
	r.wantLeaks("stream forgotten", "event", "pool", "host buffer", "4194304 bytes")
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
