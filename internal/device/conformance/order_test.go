package conformance

import (
	"runtime"

	"millrace/internal/device"
)

var orderTests = []test{
	{"WithinStream", orderWithinStream},
	{"AcrossStreams", orderAcrossStreams},
	{"Chain", orderChain},
	{"WaitCapturesRecord", waitCapturesRecord},
	{"RecordMovesEvent", recordMovesEvent},
	{"WaitOnOwnEvent", waitOnOwnEvent},
	{"Independence", independence},
}

// orderWithinStream checks that a stream runs one operation after another. Each value is copied out of the same memory
// before the next value is written.
func orderWithinStream(r *rig) {
	const steps, width = 200, 512
	s := r.stream("order")
	m, out := r.memory(width), r.host(steps*width, 0)
	open := r.gate(s)
	for i := range steps {
		r.ok(s.Fill(m, byte(i+1)), s.CopyOut(out.Slice(i*width, width), m))
	}
	open()
	r.sync(s)
	for i := range steps {
		r.wantAll("copy of a step", out.Slice(i*width, width), byte(i+1))
	}
}

// orderAcrossStreams checks that if B waits for A's event, B reads the data that A wrote, however long A takes.
func orderAcrossStreams(r *rig) {
	a, b, other := r.stream("a"), r.stream("b"), r.stream("other")
	m, out := r.memory(4096), r.host(4096, 0)
	aside, asideMemory := r.host(4096, 0), r.memory(4096)
	wrote, read := r.event(), r.event()
	r.ok(a.Fill(m, 1), a.Synchronize())

	open := r.gate(a)
	r.ok(a.Fill(m, 2), a.Record(wrote), b.Wait(wrote), b.CopyOut(out, m), b.Record(read))
	r.roundTrips(other, aside, asideMemory)
	r.wantPending("A's event is done behind a closed gate", wrote)
	r.wantPending("B read before A, which it waits for, had written", read)
	open()
	r.sync(b)
	r.wantAll("what B read", out, 2)
	r.wantReached("B is done, but the events on its way are not", wrote, read)
}

// orderChain checks that order passes through any number of streams. Each stream adds its part to the data that it
// finds.
func orderChain(r *rig) {
	const length, links = 4096, 8
	first := r.stream("first")
	m, out := r.memory(length), r.host(length, 0)
	open := r.gate(first)
	r.ok(first.Fill(m, 1))
	last := first
	for i := range links {
		next, e := r.stream("link"), r.event()
		r.ok(last.Record(e), next.Wait(e), next.Fill(m.Slice(0, length-(i+1)*256), byte(i+2)))
		last = next
	}
	r.ok(last.CopyOut(out, m))
	open()
	r.sync(last)
	for i := range links + 1 {
		from := max(0, length-(i+1)*256)
		upTo := length - i*256
		if i == links {
			from = 0
		}
		r.wantAll("a link's part", out.Slice(from, upTo-from), byte(i+1))
	}
}

// waitCapturesRecord checks that a Wait refers to the latest record at the time of the call. A later, stalled Record
// doesn't delay the waiting stream, even if it is called before that stream reaches its wait.
func waitCapturesRecord(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	e := r.event()
	openA, openB := r.gate(a), r.gate(b)
	r.ok(a.Record(e), b.Wait(e), b.Notify(1))
	openA()
	r.sync(a)
	openA = r.gate(a)
	r.ok(a.Record(e))
	openB()
	r.wantTokens(1)
	r.wantPending("the event is done, though its latest record is behind a closed gate", e)
	openA()
	r.sync(a)
	r.wantReached("the event is not done, though the stream that recorded it is", e)
}

// recordMovesEvent checks the reverse case: B waits for a stalled record. Recording the event on a free stream makes
// the event done. B still waits, although it reaches its wait only afterwards.
func recordMovesEvent(r *rig) {
	a, b, c := r.stream("a"), r.stream("b"), r.stream("c")
	buf, m := r.host(4096, 0), r.memory(4096)
	e, reached := r.event(), r.event()
	openA, openB := r.gate(a), r.gate(b)
	r.ok(a.Record(e), b.Wait(e), b.Record(reached), b.Notify(2), c.Record(e), c.Notify(3))
	r.wantTokens(3)
	r.wantReached("the event's latest record has been reached, but the event is not done", e)
	openB()
	r.roundTrips(c, buf, m)
	r.wantPending("B went past a record that is behind a closed gate", reached)
	openA()
	r.wantTokens(2)
}

// waitOnOwnEvent checks that a stream that waits for its own earlier event is not delayed.
func waitOnOwnEvent(r *rig) {
	s := r.stream("self")
	e := r.event()
	r.ok(s.Record(e), s.Wait(e), s.Record(e), s.Notify(1))
	r.wantTokens(1)
}

// independence checks that a stalled stream doesn't delay operations on other streams.
func independence(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	rows := [][]byte{[]byte("123456789"), nil, []byte("millrace")}
	k := r.kernel("crc32c", nil)
	in := r.newBatch(k, rows)
	p := r.pool(device.PoolOptions{Limit: poolLimit, ReleaseThreshold: poolLimit})
	buf, out := r.host(1<<20, 3), r.host(1<<20, 0)
	open := r.gate(a)
	r.ok(a.Notify(1))

	m, err := p.Alloc(b, 1<<20)
	r.ok(err)
	r.ok(b.CopyIn(m, buf), b.CopyOut(out, m), b.Fill(m, 0), p.Free(b, m))
	in.enqueue(b, 0x55)
	r.ok(b.Notify(2))
	r.wantTokens(2)
	r.wantAll("what B copied while A was held back", out, 3)
	in.check("what B computed while A was held back", crcRecords(rows))

	open()
	r.wantTokens(1)
}

var defaultStreamTests = []test{
	{"LegacyIsOneQueue", legacyIsOneQueue},
	{"PerThreadDoesNotWait", perThreadDoesNotWait},
}

// defaultStreamer is a device with CUDA's default streams, which only benchmarks use.
type defaultStreamer interface {
	DefaultStream(name string, perThread bool) (device.Stream, error)
}

// defaultStream returns a default stream, which is closed at the end of the test. A CUDA device must have default
// streams, and no other device has them.
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

// legacyIsOneQueue checks that all legacy default streams form one queue, whatever their names. Other streams must not
// wait for that queue.
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

var commandTests = []test{
	{"LikeCalls", listLikeCalls},
	{"Long", longList},
	{"EndsAtFailure", listEndsAtFailure},
	{"Empty", func(r *rig) { r.ok(r.dev.Enqueue(nil)) }},
	{"OfClosed", listOfClosed},
}

// listLikeCalls checks a list of commands that contains all of a batch's work, on two streams with an event between
// them.
func listLikeCalls(r *rig) {
	data := text(1, 0, 9, 100, 0, 5000)
	b := r.newBatch(r.kernel("crc32c", nil), data)
	first, second, copied := r.stream("first"), r.stream("second"), r.event()
	b.poison = 0x5a
	r.ok(r.dev.Enqueue([]device.Command{
		{Kind: device.DoFill, Stream: first, Memory: b.scratch, Value: 0x5a},
		{Kind: device.DoFill, Stream: first, Memory: b.result, Value: 0x5a},
		{Kind: device.DoCopyIn, Stream: first, Memory: b.args.Offsets, Host: b.offsets},
		{Kind: device.DoCopyIn, Stream: first, Memory: b.args.Rows, Host: b.rows},
		{Kind: device.DoRecord, Stream: first, Event: copied},
		{Kind: device.DoWait, Stream: second, Event: copied},
		{Kind: device.DoLaunch, Stream: second, Kernel: b.kernel, Args: &b.args},
		{Kind: device.DoCopyOut, Stream: second, Host: b.out.Slice(0, b.result.Bytes), Memory: b.result},
		{Kind: device.DoCopyOut, Stream: second, Host: b.out.Slice(b.result.Bytes, surplus), Memory: b.scratch.Slice(b.needs.Scratch, surplus)},
		{Kind: device.DoNotify, Stream: second, Value: 42},
	}))
	r.wantTokens(42)
	b.check("a list", crcRecords(data))
}

// longList checks that a list of any length keeps its order.
func longList(r *rig) {
	const steps = 100
	s, m, b := r.stream("s"), r.memory(1), r.host(steps, 0)
	var list []device.Command
	for i := range steps {
		list = append(list,
			device.Command{Kind: device.DoFill, Stream: s, Memory: m, Value: uint64(i)},
			device.Command{Kind: device.DoCopyOut, Stream: s, Host: b.Slice(i, 1), Memory: m})
	}
	r.ok(r.dev.Enqueue(list), s.Synchronize())
	for i, got := range b.Bytes() {
		if got != byte(i) {
			r.Fatalf("step %d of the list copied out %d", i, got)
		}
	}
}

// listEndsAtFailure checks that the commands before a refused command are carried out, and later commands are not.
func listEndsAtFailure(r *rig) {
	s, m, b := r.stream("s"), r.memory(8), r.host(8, 0)
	r.ok(s.Fill(m, 1))
	err := r.dev.Enqueue([]device.Command{
		{Kind: device.DoFill, Stream: s, Memory: m, Value: 2},
		{Kind: device.DoNotify, Stream: s, Value: 7},
		{Kind: device.DoCopyIn, Stream: s, Memory: m.Slice(0, 4), Host: b}, // does not fit
		{Kind: device.DoFill, Stream: s, Memory: m, Value: 3},
		{Kind: device.DoNotify, Stream: s, Value: 8},
	})
	r.fails("a list with a copy that does not fit", err, device.ErrInvalid)
	r.ok(s.Notify(9))
	r.wantTokens(7, 9)
	r.ok(s.CopyOut(b, m), s.Synchronize())
	r.wantAll("memory", b, 2)
}

// listOfClosed checks that a list with a closed stream or event is refused, like the same call outside a list.
func listOfClosed(r *rig) {
	s, gone, event := r.stream("s"), r.stream("gone"), r.event()
	r.ok(gone.Close(), event.Close())
	r.fails("a closed stream", r.dev.Enqueue([]device.Command{{Kind: device.DoNotify, Stream: gone, Value: 1}}), device.ErrClosed)
	r.fails("a closed event", r.dev.Enqueue([]device.Command{{Kind: device.DoRecord, Stream: s, Event: event}}), device.ErrClosed)
}
