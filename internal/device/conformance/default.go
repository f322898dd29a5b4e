package conformance

import (
	"runtime"

	"millrace/internal/device"
)

var defaultStreamTests = []test{
	{"LegacyIsOneQueue", legacyIsOneQueue},
	{"PerThreadDoesNotWait", perThreadDoesNotWait},
}

// defaultStreamer is a device with CUDA's default streams, which only benchmarks use.
type defaultStreamer interface {
	DefaultStream(name string, perThread bool) (device.Stream, error)
}

// defaultStream returns a default stream, which is closed at the end of the test. Only CUDA has default streams, and
// must have them.
func (r *rig) defaultStream(name string, perThread bool) device.Stream {
	r.Helper()
	d, ok := r.dev.(defaultStreamer)
	switch kind := r.dev.Info().Kind; {
	case !ok && kind == "cuda":
		r.Fatal("a CUDA device has no default streams")
	case !ok:
		r.Skipf("NOT TESTED: A %s DEVICE HAS NO DEFAULT STREAMS", kind)
	}
	s, err := d.DefaultStream(name, perThread)
	r.ok(err)
	r.closeLater(s.Close)
	return s
}

// legacyIsOneQueue checks that all legacy default streams form one queue, whatever their names, and that other streams
// don't wait for it.
func legacyIsOneQueue(r *rig) {
	first, second := r.defaultStream("first", false), r.defaultStream("second", false)
	own, done := r.stream("own"), r.event()
	m, b := r.memory(64), r.host(64, 0)
	open := r.gate(first)
	r.ok(second.Record(done))
	r.roundTrips(own, b, m)
	r.wantPending("work on the legacy default stream went past what was enqueued on it before", done)
	open()
	r.sync(second)
	r.wantReached("the legacy default stream is done and its event is not", done)
}

// perThreadDoesNotWait checks that a thread's default stream works while another stream is stalled.
func perThreadDoesNotWait(r *rig) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, held := r.defaultStream("mine", true), r.stream("held")
	m, b, done := r.memory(64), r.host(64, 0), r.event()
	open := r.gate(held)
	r.ok(held.Record(done))
	r.roundTrips(mine, b, m)
	r.wantPending("a per-thread default stream was done only when the stream that is held back was", done)
	open()
	r.sync(held)
}
