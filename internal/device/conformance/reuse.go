package conformance

import "millrace/internal/device"

var reuseTests = []test{
	{"SameStream", reuseSameStream},
	{"SameStreamGated", reuseSameStreamGated},
	{"NotBeforeFree", noReuseBeforeFree},
	{"AfterFree", reuseAfterFree},
	{"AfterEvent", reuseAfterEvent},
	{"FreeOnOtherStream", freeOnOtherStream},
}

func overlap(a, b device.Memory) bool {
	return a.Addr < b.Addr+uint64(b.Bytes) && b.Addr < a.Addr+uint64(a.Bytes)
}

// reuseSameStream checks that a stream that alternates between allocating and freeing needs memory for one allocation
// only.
func reuseSameStream(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.freeAll(p, s, r.take(p, s, piece))
	first := r.stats(p)
	for range 100 {
		m := r.take(p, s, piece)
		r.ok(s.Fill(m.Slice(0, 4096), 1), p.Free(s, m))
	}
	r.sync(s)
	if st := r.stats(p); st.ReservedHigh != first.ReservedHigh {
		r.Errorf("100 allocations, one at a time on one stream, took %d bytes; the first took %d", st.ReservedHigh, first.ReservedHigh)
	}
}

// reuseSameStreamGated checks that a stream may get the same memory again before it reaches the Free, and that each
// owner still sees its own bytes.
func reuseSameStreamGated(r *rig) {
	const rounds, length = 10, 1 << 20
	s, p, out := r.stream("s"), r.pool(keepAll), r.host(rounds*length, 0)
	open := r.gate(s)
	for i := range rounds {
		m := r.take(p, s, length)
		r.ok(s.Fill(m, byte(i+1)), s.CopyOut(out.Slice(i*length, length), m), p.Free(s, m))
	}
	open()
	r.sync(s)
	for i := range rounds {
		r.wantAll("an owner's bytes", out.Slice(i*length, length), byte(i+1))
	}
}

// noReuseBeforeFree checks that B's work doesn't touch A's memory before A, which is stalled, reaches its Free. B may
// get other memory and run or, as CUDA may choose, the same memory and wait for A.
func noReuseBeforeFree(r *rig) {
	const length = 64 << 10 // small, so that B finishes long before the round trips do
	a, b, other := r.stream("a"), r.stream("b"), r.stream("other")
	p := r.pool(keepAll)
	outA, outB := r.host(length, 0), r.host(length, 0)
	aside, asideMemory := r.host(1<<20, 0), r.memory(1<<20)
	freed, wrote := r.timedEvent(), r.timedEvent()
	mine := r.take(p, a, length)
	r.ok(a.Fill(mine, 1), a.Synchronize())

	open := r.gate(a)
	r.ok(a.CopyOut(outA, mine), a.Record(freed), p.Free(a, mine))
	theirs := r.take(p, b, length)
	r.ok(b.Fill(theirs, 2), b.CopyOut(outB, theirs), b.Record(wrote))
	shared := overlap(mine, theirs)
	if !shared {
		r.sync(b) // other memory: nothing delays B
		r.wantAll("B's memory, while A is held back", outB, 2)
	}
	r.roundTrips(other, aside, asideMemory)
	if shared && r.done(wrote) {
		r.Error("B was given A's memory and wrote to it, though A has not come to its Free")
	}
	open()
	r.ok(a.Synchronize(), b.Synchronize())
	r.wantAll("A's memory, which it read after B wrote its own", outA, 1)
	r.wantAll("B's memory", outB, 2)
	if one, two := r.timeOf(freed), r.timeOf(wrote); shared && two < one-orderSlack {
		r.Errorf("B was given A's memory and was done with it at %v, before A freed it at %v", two, one)
	}
	r.freeAll(p, b, theirs)
}

// reuseAfterFree checks that once A has reached its Free, B gets that memory and the pool doesn't grow.
func reuseAfterFree(r *rig) {
	a, b, p := r.stream("a"), r.stream("b"), r.pool(keepAll)
	r.freeAll(p, a, r.take(p, a, poolLimit/2))
	before := r.stats(p)
	for range 10 {
		m := r.take(p, b, poolLimit/2)
		r.ok(b.Fill(m.Slice(0, 4096), 1))
		r.freeAll(p, b, m)
		a, b = b, a
	}
	if st := r.stats(p); st.ReservedHigh != before.ReservedHigh {
		r.Errorf("two streams, one after the other, took %d bytes; one alone took %d", st.ReservedHigh, before.ReservedHigh)
	}
}

// reuseAfterEvent checks that no bytes are lost if B waits for A's Free through an event, whichever memory B gets.
func reuseAfterEvent(r *rig) {
	a, b, p := r.stream("a"), r.stream("b"), r.pool(keepAll)
	outA, outB, freed := r.host(piece, 0), r.host(piece, 0), r.event()
	open := r.gate(a)
	mine := r.take(p, a, piece)
	r.ok(a.Fill(mine, 1), a.CopyOut(outA, mine), p.Free(a, mine), a.Record(freed), b.Wait(freed))
	theirs := r.take(p, b, piece)
	r.ok(b.Fill(theirs, 2), b.CopyOut(outB, theirs), p.Free(b, theirs))
	open()
	r.sync(b)
	r.wantAll("A's bytes", outA, 1)
	r.wantAll("B's bytes", outB, 2)
}

// freeOnOtherStream checks that memory may be freed on a stream other than the one it was allocated on, if that stream
// has waited for its use.
func freeOnOtherStream(r *rig) {
	a, b, p := r.stream("a"), r.stream("b"), r.pool(keepAll)
	out, used := r.host(piece, 0), r.event()
	open := r.gate(a)
	m := r.take(p, a, piece)
	r.ok(a.Fill(m, 1), a.CopyOut(out, m), a.Record(used), b.Wait(used), p.Free(b, m))
	again := r.take(p, b, piece)
	r.ok(b.Fill(again, 2))
	open()
	r.freeAll(p, b, again)
	r.wantAll("bytes read before another stream's Free", out, 1)
	if st := r.stats(p); st.Used != 0 {
		r.Errorf("all is freed, but %d bytes count as used", st.Used)
	}
}
