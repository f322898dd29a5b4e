package host

import (
	"fmt"
	"maps"
	"sync"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// tracker panics, with the invariants tag, at a call that makes a mistake. It tracks the memory that queued operations
// use and the order that streams and events give those operations. It detects:
//
//   - access to a host buffer, or FreeHost of it, while a queued copy or an in-place launch uses it
//   - Free or Pool.Free of device memory that an operation uses without being ordered before it
//   - use of device memory that was freed or never allocated
//   - two unordered operations on different streams if one writes memory that the other uses
//
// The order is a vector clock: for each stream, it holds how much of every other stream comes before its next
// operation. Data race detectors use the same structure for threads.
type tracker struct {
	mu   sync.Mutex
	uses []use
}

// order maps each stream to the number of its last operation that comes first.
type order map[*stream]uint64

func (o order) clone() order {
	if o == nil {
		return make(order)
	}
	return maps.Clone(o)
}

// merge adds the operations that other comes after to o.
func (o order) merge(other order) {
	for s, seq := range other {
		o[s] = max(o[s], seq)
	}
}

// addressRange covers the addresses from lo to hi-1. Device addresses and host pointers are never compared with each
// other.
type addressRange struct{ lo, hi uint64 }

func (r addressRange) overlaps(o addressRange) bool { return r.lo < o.hi && o.lo < r.hi }

func hostRange(mem []byte) addressRange {
	lo := software.Address(mem)
	return addressRange{lo, lo + uint64(len(mem))}
}

func deviceRange(m device.Memory) addressRange {
	return addressRange{m.Addr, m.Addr + uint64(m.Bytes)}
}

// use is one operation's use of one span of memory.
type use struct {
	at    mark
	host  bool // host memory; device memory otherwise
	write bool
	span  addressRange
}

// admit checks an operation that is about to be enqueued as m, and records the memory that it uses. The caller holds
// the stream's lock. On misuse, admit panics and records nothing.
func (t *tracker) admit(m mark, o *op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	if o.kind == opWait {
		m.stream.order.merge(o.after)
		return
	}
	if o.kind == opFree {
		t.mustComeFirst(m.stream, deviceRange(o.dst))
		return
	}
	uses := usesOf(m, o)
	for _, u := range uses {
		if !u.host {
			m.stream.dev.mustBeLive(u.span)
		}
		t.mustBeOrdered(u)
	}
	if mem := m.stream.dev.written(o); !t.copies(hostRange(mem)) {
		software.Fill(mem, software.Poison) // a read before the copy or launch is done finds no old result
	}
	t.uses = append(t.uses, uses...)
}

// usesOf returns the memory that an operation uses.
func usesOf(m mark, o *op) []use {
	switch o.kind {
	case opCopyIn:
		return []use{{m, true, false, hostRange(o.host)}, {m, false, true, deviceRange(o.dst)}}
	case opCopyOut:
		return []use{{m, false, false, deviceRange(o.src)}, {m, true, true, hostRange(o.host)}}
	case opFill:
		return []use{{m, false, true, deviceRange(o.dst)}}
	case opLaunch:
		return nonEmpty(
			kernelUse(m, false, o.args.Rows), kernelUse(m, false, o.args.Offsets),
			use{m, false, true, deviceRange(o.args.Scratch)}, kernelUse(m, true, o.args.Result))
	}
	return nil
}

// kernelUse returns a kernel's use of device memory or mapped host memory. It panics if the memory is not within one
// live allocation.
func kernelUse(at mark, write bool, m device.Memory) use {
	if !software.IsMapped(m) || m.Bytes == 0 {
		return use{at, false, write, deviceRange(m)}
	}
	mem, _, ok := at.stream.dev.Buffers.Find(m)
	if !ok {
		panic("host device: mapped memory is used after FreeHost, or beyond its allocation's end")
	}
	return use{at, true, write, hostRange(mem)}
}

// written returns the host memory that an operation writes, or nil if it writes none.
func (d *Device) written(o *op) []byte {
	switch {
	case o.kind == opCopyOut:
		return o.host
	case o.kind == opLaunch && software.IsMapped(o.args.Result):
		mem, _, _ := d.Buffers.Find(o.args.Result)
		return mem
	}
	return nil
}

func nonEmpty(all ...use) []use {
	kept := all[:0]
	for _, u := range all {
		if u.span.lo < u.span.hi {
			kept = append(kept, u)
		}
	}
	return kept
}

// forget drops the uses of completed operations. The caller holds mu.
func (t *tracker) forget() {
	kept := t.uses[:0]
	for _, u := range t.uses {
		if !u.at.reached() {
			kept = append(kept, u)
		}
	}
	clear(t.uses[len(kept):])
	t.uses = kept
}

// before reports whether u is done before the next operation on s.
func (u use) before(s *stream) bool {
	return u.at.stream == s || s.order[u.at.stream] >= u.at.seq || u.at.reached()
}

// mustBeOrdered panics if another stream uses the same memory concurrently and at least one of the two writes.
func (t *tracker) mustBeOrdered(next use) {
	for _, u := range t.uses {
		if u.host == next.host && u.span.overlaps(next.span) && (u.write || next.write) && !u.before(next.at.stream) {
			panic(fmt.Sprintf("host device: streams %s and %s use the same memory in no order: record an event and wait for it",
				u.at.stream.name, next.at.stream.name))
		}
	}
}

// mustComeFirst panics if s frees memory while an operation that uses the memory may still run.
func (t *tracker) mustComeFirst(s *stream, freed addressRange) {
	for _, u := range t.uses {
		if !u.host && u.span.overlaps(freed) && !u.before(s) {
			panic(fmt.Sprintf("host device: stream %s frees memory in use by stream %s", s.name, u.at.stream.name))
		}
	}
}

// mustBeIdle panics if any queued operation uses device memory.
func (t *tracker) mustBeIdle(m device.Memory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	for _, u := range t.uses {
		if !u.host && u.span.overlaps(deviceRange(m)) {
			panic(fmt.Sprintf("host device: free: %v is in use by stream %s", software.Span(m), u.at.stream.name))
		}
	}
}

// mustNotCopy panics if a queued copy or launch uses host memory.
func (t *tracker) mustNotCopy(mem []byte, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	if t.copies(hostRange(mem)) {
		panic(fmt.Sprintf("host device: host buffer %s before the copy or launch that uses it is done", what))
	}
}

// copies reports whether a queued copy or launch uses host memory. The caller holds mu.
func (t *tracker) copies(r addressRange) bool {
	for _, u := range t.uses {
		if u.host && !u.at.reached() && u.span.overlaps(r) {
			return true
		}
	}
	return false
}

// mustBeLive panics if device memory is not within one live allocation.
func (d *Device) mustBeLive(r addressRange) {
	m := device.Memory{Addr: r.lo, Bytes: int(r.hi - r.lo)}
	if _, _, ok := d.Space.Find(m); !ok {
		panic(fmt.Sprintf("host device: %v is used after it was freed, or was never allocated", software.Span(m)))
	}
}
