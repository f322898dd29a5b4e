package conformance

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
)

// patience is the maximum wait for a completion. Only a failing test waits that long.
const patience = time.Minute

// rig is a fresh device and the objects that a test creates on it. At the end of the test, all objects are closed in
// reverse order. The device must then close without a leak.
type rig struct {
	*testing.T
	dev    device.Device
	warmed bool
}

func newRig(t *testing.T, open func(t *testing.T) device.Device) *rig {
	t.Helper()
	r := &rig{T: t, dev: open(t)}
	t.Cleanup(func() { r.ok(r.dev.Close()) })
	return r
}

// ok ends the test if one of the calls failed. A device's errors name the call.
func (r *rig) ok(calls ...error) {
	r.Helper()
	for _, err := range calls {
		if err != nil {
			r.Fatal(err)
		}
	}
}

// fails checks that a call was refused with an error of the given kind, and that the device still works.
func (r *rig) fails(what string, err, kind error) {
	r.Helper()
	if !errors.Is(err, kind) {
		r.Errorf("%s: got error %v, want one that wraps %q", what, err, kind)
	}
	if lost := r.dev.Err(); lost != nil {
		r.Fatalf("%s: the device must survive this call, but its error is: %v", what, lost)
	}
}

// failure returns the error of a call that also returns a value.
func failure[T any](_ T, err error) error { return err }

func (r *rig) closeLater(release func() error) {
	r.Cleanup(func() {
		if err := release(); err != nil {
			r.Error(err)
		}
	})
}

// kept returns an object that was just created and closes it at the end of the test.
func kept[T interface{ Close() error }](r *rig) func(made T, err error) T {
	return func(made T, err error) T {
		r.Helper()
		r.ok(err)
		r.closeLater(made.Close)
		return made
	}
}

func (r *rig) stream(name string) device.Stream {
	r.Helper()
	return kept[device.Stream](r)(r.dev.NewStream(name))
}

func (r *rig) newEvent(flags device.EventFlags) device.Event {
	r.Helper()
	return kept[device.Event](r)(r.dev.NewEvent(flags))
}

func (r *rig) event() device.Event      { r.Helper(); return r.newEvent(0) }
func (r *rig) timedEvent() device.Event { r.Helper(); return r.newEvent(device.Timed) }

func (r *rig) pool(c device.PoolOptions) device.Pool {
	r.Helper()
	return kept[device.Pool](r)(r.dev.NewPool(c))
}

func (r *rig) kernel(name string, params []byte) device.Kernel {
	r.Helper()
	return kept[device.Kernel](r)(r.dev.Kernel(name, params))
}

func (r *rig) host(length int, value byte) device.HostBuffer {
	r.Helper()
	b, err := r.dev.AllocHost(length)
	r.ok(err)
	r.closeLater(func() error { return r.dev.FreeHost(b) })
	paint(b.Bytes(), value)
	return b
}

func (r *rig) memory(length int) device.Memory {
	r.Helper()
	m, err := r.dev.Alloc(length)
	r.ok(err)
	r.closeLater(func() error { return r.dev.Free(m) })
	return m
}

func (r *rig) stats(p device.Pool) device.PoolStats {
	r.Helper()
	st, err := p.Stats()
	r.ok(err)
	return st
}

func (r *rig) sync(s device.Stream) {
	r.Helper()
	r.ok(s.Synchronize())
}

func (r *rig) done(e device.Event) bool {
	r.Helper()
	done, err := e.Done()
	r.ok(err)
	return done
}

// wantReached checks that the device has reached the events. If not, the test fails with the message wrong.
func (r *rig) wantReached(wrong string, events ...device.Event) {
	r.Helper()
	for _, e := range events {
		if !r.done(e) {
			r.Error(wrong)
		}
	}
}

// wantPending checks that the device has not reached the event. If it has, the test fails with the message wrong.
func (r *rig) wantPending(wrong string, e device.Event) {
	r.Helper()
	if r.done(e) {
		r.Error(wrong)
	}
}

// gate stalls s until the function that it returns is called or the test is over.
func (r *rig) gate(s device.Stream) (open func()) {
	r.Helper()
	gater, ok := r.dev.(device.Gater)
	if !ok {
		r.Fatalf("a %s device does not implement device.Gater, which this suite needs", r.dev.Info().Kind)
	}
	r.warm()
	open, err := gater.Gate(s)
	r.ok(err)
	open = sync.OnceFunc(open)
	r.Cleanup(open)
	return open
}

// warm uses each feature once. At its first launch, a GPU may load a kernel and wait for all work, which must not
// happen while a gate is closed.
func (r *rig) warm() {
	r.Helper()
	if r.warmed {
		return
	}
	r.warmed = true
	s := r.stream("warm")
	r.launch(s, r.kernel("crc32c", nil), [][]byte{[]byte("warm")}, 0)
	e := r.timedEvent()
	r.ok(s.Record(e), s.Notify(0))
	r.wantTokens(0)
}

// wantTokens waits for completions and checks that they have these tokens, in this order.
func (r *rig) wantTokens(want ...uint64) {
	r.Helper()
	for i, token := range want {
		if got := r.nextToken(); got != token {
			r.Fatalf("completion %d of %d: got token %d, want %d", i+1, len(want), got, token)
		}
	}
}

func (r *rig) nextToken() uint64 {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	token, err := r.dev.WaitCompletion(ctx)
	r.ok(err)
	return token
}

// roundTrips runs many operations on other streams through the device, so that a forbidden effect has time to appear.
func (r *rig) roundTrips(s device.Stream, buf device.HostBuffer, m device.Memory) {
	r.Helper()
	for range 20 {
		r.ok(s.CopyIn(m, buf), s.CopyOut(buf, m), s.Synchronize())
	}
}

func (r *rig) wantAll(what string, b device.HostBuffer, value byte) {
	r.Helper()
	r.wantBytes(what, b.Bytes(), bytes.Repeat([]byte{value}, b.Len()))
}

func (r *rig) wantBytes(what string, got, want []byte) {
	r.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		r.Fatalf("%s: got %d bytes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			r.Fatalf("%s: byte %d of %d is %#02x, want %#02x", what, i, len(got), got[i], want[i])
		}
	}
}

func paint(mem []byte, value byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = value
	for done := 1; done < len(mem); done *= 2 {
		copy(mem[done:], mem[:done])
	}
}

// pattern fills mem with bytes that depend on seed and position and don't repeat after a short period.
func pattern(mem []byte, seed uint64) {
	state := seed*0x9E3779B97F4A7C15 + 1
	for i := range mem {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		mem[i] = byte(state >> 32)
	}
}
