package conformance

import (
	"errors"

	"millrace/internal/device"
)

var poolTests = []test{
	{"AllocationsApart", poolAllocationsApart},
	{"Stats", poolStats},
	{"Limit", poolLimited},
	{"LimitAfterPieces", poolLimitAfterPieces},
	{"ThresholdKeeps", thresholdKeeps},
	{"ThresholdReleases", thresholdReleases},
	{"Trim", poolTrim},
	{"Apart", poolsApart},
	{"CloseBeforeFree", poolCloseBeforeFree},
}

// poolLimit is the limit of the pools in this suite. GPUs allocate memory in pieces of 2 MiB or more, so a smaller
// limit would only test rounding.
const poolLimit = 64 << 20

// piece is a fraction of poolLimit, in bytes.
const piece = 8 << 20

// keepAll configures a pool that releases no memory on its own.
var keepAll = device.PoolConfig{Limit: poolLimit, ReleaseThreshold: poolLimit}

// take allocates from a pool.
func (r *rig) take(p device.Pool, s device.Stream, length int) device.Memory {
	r.Helper()
	m, err := p.Alloc(s, length)
	r.ok(err)
	if m.Bytes != length {
		r.Fatalf("asked for %d bytes, got %d", length, m.Bytes)
	}
	return m
}

// wantReserved checks how many bytes a pool has taken from the device.
func (r *rig) wantReserved(when string, p device.Pool, least, most int64) {
	r.Helper()
	if st := r.stats(p); st.Reserved < least || st.Reserved > most {
		r.Errorf("%s: the pool has taken %d bytes, want %d to %d", when, st.Reserved, least, most)
	}
}

// drain allocates pieces until the pool refuses, and checks the error.
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
	r.Fatalf("a pool capped at %d bytes gave %d pieces of %d", poolLimit, len(all), piece)
	return nil
}

// freeAll frees the memory on s and waits until it is freed.
func (r *rig) freeAll(p device.Pool, s device.Stream, all ...device.Memory) {
	r.Helper()
	for _, m := range all {
		r.ok(p.Free(s, m))
	}
	r.sync(s)
}

// poolAllocationsApart checks that live allocations don't overlap and are aligned.
func poolAllocationsApart(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.freeAll(p, s, r.wantApart(s, func(length int) device.Memory { return r.take(p, s, length) })...)
}

// poolStats checks that the counters follow allocations and that the high-water marks stay.
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
		r.Errorf("with %d bytes handed out: %+v", 2*piece, full)
	}
	r.freeAll(p, s, a)
	if half := r.stats(p); half.Used < piece || half.Used >= full.Used {
		r.Errorf("with %d bytes handed out, after %+v: %+v", piece, full, half)
	}
	r.freeAll(p, s, b)
	empty := r.stats(p)
	if empty.Used != 0 {
		r.Errorf("with nothing handed out: %+v", empty)
	}
	if empty.UsedHigh != full.Used || empty.ReservedHigh < full.Reserved {
		r.Errorf("the high marks are %+v, after %+v", empty, full)
	}
}

// poolLimited checks that an allocation beyond the limit fails, and that later ones succeed after memory was freed.
func poolLimited(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.fails("alloc of more than the cap", failure(p.Alloc(s, poolLimit+piece)), device.ErrOutOfMemory)
	for range 3 {
		all := r.drain(p, s)
		if len(all) < poolLimit/piece/2 {
			r.Errorf("a pool capped at %d bytes gave only %d pieces of %d", poolLimit, len(all), piece)
		}
		r.wantReserved("drained", p, 0, poolLimit)
		for i, m := range all { // the stream is unchanged and takes work
			r.ok(s.Fill(m, byte(i)))
		}
		r.freeAll(p, s, all[:1]...)
		m := r.take(p, s, piece)
		r.freeAll(p, s, append(all[1:], m)...)
	}
}

// poolLimitAfterPieces checks that memory freed in small pieces can be allocated as a large piece, and vice versa.
func poolLimitAfterPieces(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	for range 3 {
		r.freeAll(p, s, r.drain(p, s)...)
		r.freeAll(p, s, r.take(p, s, poolLimit/2))
	}
}

// thresholdKeeps checks that no memory below the threshold returns to the device.
func thresholdKeeps(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	r.freeAll(p, s, r.take(p, s, piece))
	r.sync(s)
	r.wantReserved("below the release threshold", p, piece, poolLimit)
}

// thresholdReleases checks that unused memory above the threshold returns to the device when it synchronizes.
func thresholdReleases(r *rig) {
	s, p := r.stream("s"), r.pool(device.PoolConfig{Limit: poolLimit})
	r.freeAll(p, s, r.take(p, s, piece))
	r.sync(s)
	r.wantReserved("with release threshold 0, synchronized", p, 0, 0)
	r.ok(p.SetReleaseThreshold(poolLimit))
	r.freeAll(p, s, r.take(p, s, piece))
	r.sync(s)
	r.wantReserved("with the threshold raised, synchronized", p, piece, poolLimit)
	r.ok(p.SetReleaseThreshold(0))
	r.freeAll(p, s, r.take(p, s, piece))
	r.sync(s)
	r.wantReserved("with the threshold lowered again, synchronized", p, 0, 0)
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

// poolsApart checks that pools don't affect each other.
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

// poolCloseBeforeFree checks that a pool may be closed while its memory is in use. It then refuses allocations and
// disappears with the last Free.
func poolCloseBeforeFree(r *rig) {
	s := r.stream("s")
	p, err := r.dev.NewPool(keepAll)
	r.ok(err)
	m, out := r.take(p, s, piece), r.host(piece, 0)
	r.ok(p.Close())
	r.fails("alloc from a closed pool", failure(p.Alloc(s, piece)), device.ErrClosed)
	r.ok(s.Fill(m, 3), s.CopyOut(out, m), p.Free(s, m), s.Synchronize())
	r.wantAll("memory of a closed pool", out, 3)
	r.ok(p.Close())
}
