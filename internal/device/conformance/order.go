package conformance

import "millrace/internal/device"

var orderTests = []test{
	{"WithinStream", orderWithinStream},
	{"AcrossStreams", orderAcrossStreams},
	{"Chain", orderChain},
	{"WaitCapturesRecord", waitCapturesRecord},
	{"RecordMovesEvent", recordMovesEvent},
	{"WaitOnOwnEvent", waitOnOwnEvent},
	{"Independence", independence},
	{"GateHolds", gateHolds},
}

// orderWithinStream checks that a stream does one thing after another. The same memory takes different values in turn,
// and each value is copied out before the next one is written.
func orderWithinStream(r *rig) {
	const steps, width = 200, 512
	s := r.stream("order")
	m, out := r.memory(width), r.host(steps*width, 0)
	open := r.gate(s)
	for i := range steps {
		r.ok("fill", s.Fill(m, byte(i+1)))
		r.ok("copy out", s.CopyOut(out.Slice(i*width, width), m))
	}
	open()
	r.sync(s)
	for i := range steps {
		r.wantAll("copy of a step", out.Slice(i*width, width), byte(i+1))
	}
}

// orderAcrossStreams checks that if B waits for A's event, B reads what A wrote, however long A takes.
func orderAcrossStreams(r *rig) {
	a, b, other := r.stream("a"), r.stream("b"), r.stream("other")
	m, out := r.memory(4096), r.host(4096, 0)
	aside, asideMemory := r.host(4096, 0), r.memory(4096)
	wrote, read := r.event(), r.event()
	r.ok("fill", a.Fill(m, 1))
	r.sync(a)

	open := r.gate(a)
	r.ok("fill", a.Fill(m, 2))
	r.ok("record", a.Record(wrote))
	r.ok("wait", b.Wait(wrote))
	r.ok("copy out", b.CopyOut(out, m))
	r.ok("record", b.Record(read))
	r.roundTrips(other, aside, asideMemory)
	if r.done(wrote) {
		r.Error("A's event is done behind a closed gate")
	}
	if r.done(read) {
		r.Error("B read before A, which it waits for, had written")
	}
	open()
	r.sync(b)
	r.wantAll("what B read", out, 2)
	if !r.done(wrote) || !r.done(read) {
		r.Error("B is done, but the events on its way are not")
	}
}

// orderChain checks that order passes through any number of streams. Each stream adds its part to the data that it
// finds.
func orderChain(r *rig) {
	const length, links = 4096, 8
	first := r.stream("first")
	m, out := r.memory(length), r.host(length, 0)
	open := r.gate(first)
	r.ok("fill", first.Fill(m, 1))
	last := first
	for i := range links {
		next, e := r.stream("link"), r.event()
		r.ok("record", last.Record(e))
		r.ok("wait", next.Wait(e))
		r.ok("fill", next.Fill(m.Slice(0, length-(i+1)*256), byte(i+2)))
		last = next
	}
	r.ok("copy out", last.CopyOut(out, m))
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

// waitCapturesRecord checks that a Wait refers to the record that was current at the call. A later Record that is
// stalled doesn't delay the stream that waited before, even if the Record is called before that stream reaches its
// wait.
func waitCapturesRecord(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	e := r.event()
	openA, openB := r.gate(a), r.gate(b)
	r.ok("record", a.Record(e))
	r.ok("wait", b.Wait(e))
	r.ok("notify", b.Notify(1))
	openA()
	r.sync(a)
	openA = r.gate(a)
	r.ok("record", a.Record(e))
	openB()
	r.wantTokens(1)
	if r.done(e) {
		r.Error("the event is done, though its latest record is behind a closed gate")
	}
	openA()
	r.sync(a)
	if !r.done(e) {
		r.Error("the event is not done, though the stream that recorded it is")
	}
}

// recordMovesEvent checks the reverse case. B waits for a record that is stalled. Recording the event on a free stream
// makes the event done, but B still waits, although it reaches its wait only afterwards.
func recordMovesEvent(r *rig) {
	a, b, c := r.stream("a"), r.stream("b"), r.stream("c")
	buf, m := r.host(4096, 0), r.memory(4096)
	e, reached := r.event(), r.event()
	openA, openB := r.gate(a), r.gate(b)
	r.ok("record", a.Record(e))
	r.ok("wait", b.Wait(e))
	r.ok("record", b.Record(reached))
	r.ok("notify", b.Notify(2))
	r.ok("record", c.Record(e))
	r.ok("notify", c.Notify(3))
	r.wantTokens(3)
	if !r.done(e) {
		r.Error("the event's latest record has been reached, but the event is not done")
	}
	openB()
	r.roundTrips(c, buf, m)
	if r.done(reached) {
		r.Error("B went past a record that is behind a closed gate")
	}
	openA()
	r.wantTokens(2)
}

// waitOnOwnEvent checks that a stream that waits for its own earlier event doesn't wait at all.
func waitOnOwnEvent(r *rig) {
	s := r.stream("self")
	e := r.event()
	r.ok("record", s.Record(e))
	r.ok("wait", s.Wait(e))
	r.ok("record", s.Record(e))
	r.ok("notify", s.Notify(1))
	r.wantTokens(1)
}

// independence checks that a stalled stream doesn't delay other streams, whatever they do.
func independence(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	rows := [][]byte{[]byte("123456789"), nil, []byte("millrace")}
	k := r.kernel("crc32c", nil)
	in := r.newBatch(k, rows)
	p := r.pool(device.PoolConfig{Limit: poolLimit, ReleaseThreshold: poolLimit})
	buf, out := r.host(1<<20, 3), r.host(1<<20, 0)
	open := r.gate(a)
	r.ok("notify", a.Notify(1))

	m, err := p.Alloc(b, 1<<20)
	r.ok("pool alloc", err)
	r.ok("copy in", b.CopyIn(m, buf))
	r.ok("copy out", b.CopyOut(out, m))
	r.ok("fill", b.Fill(m, 0))
	r.ok("pool free", p.Free(b, m))
	in.enqueue(b, 0x55)
	r.ok("notify", b.Notify(2))
	r.wantTokens(2)
	r.wantAll("what B copied while A was held back", out, 3)
	in.check("what B computed while A was held back", crcRecords(rows))

	open()
	r.wantTokens(1)
}

// gateHolds checks the suite's own tool: nothing passes a closed gate.
func gateHolds(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	before, after := r.event(), r.event()
	buf, m := r.host(4096, 0), r.memory(4096)
	r.ok("record", a.Record(before))
	open := r.gate(a)
	r.ok("record", a.Record(after))
	r.roundTrips(b, buf, m)
	if r.done(after) {
		r.Error("a record behind a closed gate is done")
	}
	open()
	r.sync(a)
	if !r.done(before) || !r.done(after) {
		r.Error("a gate was opened and its stream synchronized, but records around it are not done")
	}
}
