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

// orderWithinStream checks that a stream runs one operation after another. The same memory takes different values in
// turn, and each value is copied out before the next one is written.
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

// orderAcrossStreams checks that if B waits for A's event, B reads what A wrote, however long A takes.
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

// waitCapturesRecord checks that a Wait refers to the record that was current at the call. A later Record that is
// stalled doesn't delay the stream that waited before, even if the Record is called before that stream reaches its
// wait.
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

// recordMovesEvent checks the reverse case. B waits for a record that is stalled. Recording the event on a free stream
// makes the event done, but B still waits, although it reaches its wait only afterwards.
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

// waitOnOwnEvent checks that a stream that waits for its own earlier event doesn't wait at all.
func waitOnOwnEvent(r *rig) {
	s := r.stream("self")
	e := r.event()
	r.ok(s.Record(e), s.Wait(e), s.Record(e), s.Notify(1))
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

// gateHolds checks the suite's own tool: nothing passes a closed gate.
func gateHolds(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	before, after := r.event(), r.event()
	buf, m := r.host(4096, 0), r.memory(4096)
	r.ok(a.Record(before))
	open := r.gate(a)
	r.ok(a.Record(after))
	r.roundTrips(b, buf, m)
	r.wantPending("a record behind a closed gate is done", after)
	open()
	r.sync(a)
	r.wantReached("a gate was opened and its stream synchronized, but records around it are not done", before, after)
}
