package conformance

import (
	"errors"
	"fmt"

	"millrace/internal/device"
)

var poolTests = []test{
	{"AllocationsApart", poolAllocationsApart},
	{"Stats", poolStats},
	{"Limit", poolLimited},
	{"LimitAfterPieces", poolLimitAfterPieces},
	{"ReleaseThreshold", releaseThreshold},
	{"Trim", poolTrim},
	{"Apart", poolsApart},
	{"CloseBeforeFree", poolCloseBeforeFree},
}

// poolLimit is the limit of the pools in this suite, in bytes. GPUs allocate memory in pieces of 2 MiB or more, so a
// smaller limit would only test rounding.
const poolLimit = 64 << 20

// piece is the size of one allocation, in bytes. poolLimit is a multiple of it.
const piece = 8 << 20

// keepAll configures a pool that releases no memory on its own.
var keepAll = device.PoolOptions{Limit: poolLimit, ReleaseThreshold: poolLimit}

func (r *rig) take(p device.Pool, s device.Stream, length int) device.Memory {
	r.Helper()
	m, err := p.Alloc(s, length)
	r.ok(err)
	if m.Bytes != length {
		r.Fatalf("asked for %d bytes, got %d", length, m.Bytes)
	}
	return m
}

// wantReserved checks the number of bytes that a pool has reserved on the device.
func (r *rig) wantReserved(when string, p device.Pool, minimum, maximum int64) {
	r.Helper()
	if st := r.stats(p); st.Reserved < minimum || st.Reserved > maximum {
		r.Errorf("%s: the pool has reserved %d bytes, want %d to %d", when, st.Reserved, minimum, maximum)
	}
}

// drain allocates pieces until the pool is full, and checks the error.
func (r *rig) drain(p device.Pool, s device.Stream) []device.Memory {
	r.Helper()
	var all []device.Memory
	for len(all) <= poolLimit/piece {
		m, err := p.Alloc(s, piece)
		if errors.Is(err, device.ErrOutOfMemory) {
			return all
		}
		r.ok(err)
		all = append(all, m)
	}
	r.Fatalf("a pool with a limit of %d bytes gave %d pieces of %d", poolLimit, len(all), piece)
	return nil
}

// freeAll frees the memory on s and waits until the memory is free.
func (r *rig) freeAll(p device.Pool, s device.Stream, all ...device.Memory) {
	r.Helper()
	for _, m := range all {
		r.ok(p.Free(s, m))
	}
	r.sync(s)
}

func poolAllocationsApart(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.freeAll(p, s, r.wantApart(s, func(length int) device.Memory { return r.take(p, s, length) })...)
}

// poolStats checks that the counters follow allocations and that high-water marks never fall.
func poolStats(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	if st := r.stats(p); st != (device.PoolStats{}) {
		r.Errorf("a fresh pool has %+v", st)
	}
	a, b := r.take(p, s, piece), r.take(p, s, piece)
	r.sync(s)
	full := r.stats(p)
	if full.Used < 2*piece || full.Used > poolLimit || full.Reserved < full.Used ||
		full.UsedHigh != full.Used || full.ReservedHigh != full.Reserved {
		r.Errorf("with %d bytes allocated: %+v", 2*piece, full)
	}
	r.freeAll(p, s, a)
	if half := r.stats(p); half.Used < piece || half.Used >= full.Used {
		r.Errorf("with %d bytes allocated, after %+v: %+v", piece, full, half)
	}
	r.freeAll(p, s, b)
	empty := r.stats(p)
	if empty.Used != 0 {
		r.Errorf("with nothing allocated: %+v", empty)
	}
	if empty.UsedHigh != full.Used || empty.ReservedHigh < full.Reserved {
		r.Errorf("the high marks are %+v, after %+v", empty, full)
	}
}

// poolLimited checks that an allocation beyond the limit fails, and that it succeeds after memory was freed.
func poolLimited(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.fails("alloc of more than the cap", failure(p.Alloc(s, poolLimit+piece)), device.ErrOutOfMemory)
	for range 3 {
		all := r.drain(p, s)
		if len(all) < poolLimit/piece/2 {
			r.Errorf("a pool with a limit of %d bytes gave only %d pieces of %d", poolLimit, len(all), piece)
		}
		r.wantReserved("drained", p, 0, poolLimit)
		for i, m := range all { // the stream is unchanged and accepts work
			r.ok(s.Fill(m, byte(i)))
		}
		r.freeAll(p, s, all[:1]...)
		m := r.take(p, s, piece)
		r.freeAll(p, s, append(all[1:], m)...)
	}
}

// poolLimitAfterPieces checks that memory freed in small pieces can be allocated as a large piece, and the reverse.
func poolLimitAfterPieces(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	for range 3 {
		r.freeAll(p, s, r.drain(p, s)...)
		r.freeAll(p, s, r.take(p, s, poolLimit/2))
	}
}

// releaseThreshold checks that unused memory above the threshold returns to the device when it synchronizes. No other
// memory may return.
func releaseThreshold(r *rig) {
	s := r.stream("s")
	for threshold, maximum := range map[int64]int64{0: 0, poolLimit: poolLimit} {
		p := r.pool(device.PoolOptions{Limit: poolLimit, ReleaseThreshold: threshold})
		r.freeAll(p, s, r.take(p, s, piece))
		r.sync(s)
		r.wantReserved(fmt.Sprintf("with release threshold %d, synchronized", threshold), p, min(maximum, piece), maximum)
	}
}

// poolTrim checks that Trim returns unused memory at once, and that used memory keeps its contents.
func poolTrim(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	kept, out := r.take(p, s, piece), r.host(piece, 0)
	r.ok(s.Fill(kept, 7))
	r.freeAll(p, s, r.take(p, s, poolLimit/2))
	before := r.stats(p)
	r.ok(p.Trim(before.Reserved))
	r.wantReserved("trimmed to what is reserved", p, before.Reserved, before.Reserved)
	r.ok(p.Trim(0))
	if st := r.stats(p); st.Reserved >= before.Reserved || st.Reserved < piece || st.Used < piece {
		r.Errorf("after a trim with %d bytes in use: %+v, before it %+v", piece, st, before)
	}
	r.ok(s.CopyOut(out, kept))
	r.freeAll(p, s, kept)
	r.wantAll("memory in use during a trim", out, 7)
	r.ok(p.Trim(0))
	r.wantReserved("trimmed with nothing in use", p, 0, 0)
	r.freeAll(p, s, r.take(p, s, piece)) // the pool still works
}

func poolsApart(r *rig) {
	s, p, q := r.stream("s"), r.pool(keepAll), r.pool(keepAll)
	all := r.drain(p, s)
	if st := r.stats(q); st != (device.PoolStats{}) {
		r.Errorf("one pool is full and the other, unused, has %+v", st)
	}
	m := r.take(q, s, piece)
	r.ok(p.Trim(0))
	r.freeAll(p, s, all...)
	r.ok(p.Trim(0))
	if st := r.stats(q); st.Used < piece {
		r.Errorf("one pool was emptied and the other, with %d bytes in use, has %+v", piece, st)
	}
	r.ok(s.Fill(m, 1))
	r.freeAll(q, s, m)
}

// poolCloseBeforeFree checks that a pool may be closed while its memory is in use. The closed pool refuses allocations
// and disappears with the last Free.
func poolCloseBeforeFree(r *rig) {
	s := r.stream("s")
	p, err := r.dev.NewPool(keepAll)
	r.ok(err)
	m, out := r.take(p, s, piece), r.host(piece, 0)
	r.ok(p.Close())
	r.fails("alloc from a closed pool", failure(p.Alloc(s, piece)), device.ErrClosed)
	r.ok(s.Fill(m, 3), s.CopyOut(out, m), p.Free(s, m), s.Synchronize())
	r.wantAll("memory of a closed pool", out, 3)
	r.fails("alloc from a pool that has been freed", failure(p.Alloc(s, piece)), device.ErrClosed)
	r.ok(p.Close())
}

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

// reuseSameStreamGated checks that a stream may get the same memory again before it reaches the Free. Each owner must
// still read its own bytes.
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
// get other memory and run. CUDA may also choose the same memory, and then B must wait for A.
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
		r.sync(b) // other memory, so nothing delays B
		r.wantAll("B's memory, while A is held back", outB, 2)
	}
	r.roundTrips(other, aside, asideMemory)
	if shared && r.done(wrote) {
		r.Error("B got A's memory and wrote to it before A reached its Free")
	}
	open()
	r.ok(a.Synchronize(), b.Synchronize())
	r.wantAll("A's memory, which it read after B wrote its own", outA, 1)
	r.wantAll("B's memory", outB, 2)
	if one, two := r.timeOf(freed), r.timeOf(wrote); shared && two < one-orderSlack {
		r.Errorf("B got A's memory and finished with it at %v, before A freed it at %v", two, one)
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

// reuseAfterEvent checks that no bytes are lost if B waits for A's Free through an event. B may get any memory.
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

// freeOnOtherStream checks that memory may be freed on a stream that did not allocate it, if that stream has waited for
// its use.
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
		r.Errorf("all memory is freed, but %d bytes count as used", st.Used)
	}
}
