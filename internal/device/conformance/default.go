package conformance

import (
	"runtime"

	"millrace/internal/device"
)

var defaultStreamTests = []test{
	{"LegacyIsOneQueue", legacyIsOneQueue},
	{"PerThreadDoesNotWait", perThreadDoesNotWait},
}

// defaultStream returns a default stream, which is closed at the end of the test.
func (r *rig) defaultStream(name string, kind device.DefaultKind) device.Stream {
	r.Helper()
	d, ok := r.dev.(device.DefaultStreamer)
	if !ok {
		r.Skipf("NOT TESTED: A %s DEVICE HAS NO DEFAULT STREAMS", r.dev.Info().Kind)
	}
	s, err := d.DefaultStream(name, kind)
	r.ok("default stream", err)
	r.closeLater("close "+name, s.Close)
	return s
}

// legacyIsOneQueue checks that all legacy default streams form one queue, whatever their names, and that other streams
// don't wait for it.
func legacyIsOneQueue(r *rig) {
	first, second := r.defaultStream("first", device.LegacyDefault), r.defaultStream("second", device.LegacyDefault)
	own, done := r.stream("own"), r.event()
	m, b := r.memory(64), r.host(64, 0)
	open := r.gate(first)
	r.ok("record", second.Record(done))
	r.roundTrips(own, b, m)
	if r.done(done) {
		r.Error("work on the legacy default stream went past what was enqueued on it before")
	}
	open()
	r.sync(second)
	if !r.done(done) {
		r.Error("the legacy default stream is done and its event is not")
	}
}

// perThreadDoesNotWait checks that a thread's default stream works while another stream is stalled.
func perThreadDoesNotWait(r *rig) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, held := r.defaultStream("mine", device.PerThreadDefault), r.stream("held")
	m, b, done := r.memory(64), r.host(64, 0), r.event()
	open := r.gate(held)
	r.ok("record", held.Record(done))
	r.roundTrips(mine, b, m)
	if r.done(done) {
		r.Error("a per-thread default stream was done only when the stream that is held back was")
	}
	open()
	r.sync(held)
}
