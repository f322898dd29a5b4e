package conformance

import (
	"bytes"
	"fmt"
	"slices"

	"millrace/internal/device"
)

var copyTests = []test{
	{"RoundTrip", copyRoundTrip},
	{"Empty", copyEmpty},
	{"Fill", fillSpans},
	{"AllocationsApart", allocationsApart},
}

// margin is the number of bytes around a copy that the tests check for changes.
const margin = 64

// copyRoundTrip checks that copied bytes come back unchanged, for any length and offset. The bytes around the copy must
// not change on the device or on the host.
func copyRoundTrip(r *rig) {
	const largest = 8 << 20
	const length = largest + 4*margin
	s := r.stream("copy")
	in, out, m := r.host(length, 0), r.host(length, 0), r.memory(length)
	pattern(in.Bytes(), 1)
	lengths := []int{1, 2, 3, 7, 8, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 65535, 65537, 1<<20 + 13}
	offsets := []int{0, 1, 3, 7, 63, 64}
	for _, n := range lengths {
		for i, from := range offsets {
			r.oneRoundTrip(s, in.Slice(from, n), m, margin+offsets[(i+1)%len(offsets)], out, margin+offsets[(i+2)%len(offsets)])
		}
	}
	r.oneRoundTrip(s, in.Slice(0, largest), m, margin, out, margin)
	r.oneRoundTrip(s, in.Slice(5, largest), m, margin+3, out, margin+1)
}

// oneRoundTrip copies src to m at offset at, and from there to out at offset to.
func (r *rig) oneRoundTrip(s device.Stream, src device.HostBuffer, m device.Memory, at int, out device.HostBuffer, to int) {
	r.Helper()
	n := src.Len()
	what := fmt.Sprintf("%d bytes by offset %d on the device to %d on the host", n, at, to)
	whole := m.Slice(at-margin, n+2*margin)
	seen := out.Slice(to-margin, n+2*margin+margin)
	paint(seen.Bytes(), 0xEE)
	r.ok(s.Fill(whole, 0xAA), s.CopyIn(m.Slice(at, n), src))
	r.ok(s.CopyOut(seen, whole)) // the copy is shorter than its destination by the margin
	r.sync(s)
	edge := bytes.Repeat([]byte{0xAA}, margin)
	want := slices.Concat(edge, src.Bytes(), edge, bytes.Repeat([]byte{0xEE}, margin))
	r.wantBytes(what, seen.Bytes(), want)
}

// copyEmpty checks that an empty copy does no work and needs no memory.
func copyEmpty(r *rig) {
	s := r.stream("copy")
	r.ok(s.CopyIn(device.Memory{}, device.HostBuffer{}), s.CopyOut(device.HostBuffer{}, device.Memory{}))
	m, b := r.memory(64), r.host(64, 5)
	r.ok(s.Fill(m, 9), s.CopyIn(m, b.Slice(10, 0)), s.CopyOut(b, m.Slice(10, 0)), s.Synchronize())
	r.wantAll("a buffer after an empty copy out", b, 5)
	r.ok(s.CopyOut(b, m), s.Synchronize())
	r.wantAll("memory after an empty copy in", b, 9)
}

func fillSpans(r *rig) {
	const length = 1 << 16
	s := r.stream("fill")
	m, b := r.memory(length), r.host(length, 0)
	want := make([]byte, length)
	r.ok(s.Fill(m, 0))
	for i, span := range [][2]int{{0, 1}, {1, 3}, {255, 2}, {1000, 4096}, {65535, 1}, {33333, 7777}} {
		value := byte(0x10 + i)
		r.ok(s.Fill(m.Slice(span[0], span[1]), value))
		paint(want[span[0]:span[0]+span[1]], value)
	}
	r.ok(s.CopyOut(b, m), s.Synchronize())
	r.wantBytes("filled memory", b.Bytes(), want)
}

// allocationsApart checks that live allocations don't overlap and are aligned for a kernel's results.
func allocationsApart(r *rig) {
	r.wantApart(r.stream("alloc"), r.memory)
}

// wantApart allocates memory of several sizes, fills all of it on s, and checks its contents and alignment.
func (r *rig) wantApart(s device.Stream, alloc func(length int) device.Memory) (all []device.Memory) {
	r.Helper()
	for i, n := range []int{1, 255, 256, 257, 4096, 100_000, 1, 3 << 20} {
		m := alloc(n)
		if m.Bytes != n {
			r.Fatalf("asked for %d bytes, got %d", n, m.Bytes)
		}
		if m.Addr%256 != 0 {
			r.Errorf("%d bytes at %#x: not aligned to 256", n, m.Addr)
		}
		r.ok(s.Fill(m, byte(i+1)))
		all = append(all, m)
	}
	for i, m := range all {
		b := r.host(m.Bytes, 0)
		r.ok(s.CopyOut(b, m), s.Synchronize())
		r.wantAll(fmt.Sprintf("allocation %d of %d bytes", i, m.Bytes), b, byte(i+1))
	}
	return all
}
