//go:build invariants

package host_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/device"
)

// misuse is one mistake and the expected text of the panic.
type misuse struct {
	name string
	says string
	make func(r *rig)
}

var misuses = []misuse{
	{"look at a source before its copy is done", "host buffer is looked at before", func(r *rig) {
		m, b := r.memory(64), r.host(64)
		r.gate(r.s)
		r.ok(r.s.CopyIn(m, b.Slice(10, 20)))
		b.Slice(0, 10).Bytes() // a different part of the buffer is no mistake
		b.Slice(29, 5).Bytes()
	}},
	{"look at a destination before its copy is done", "host buffer is looked at before", func(r *rig) {
		m, b := r.memory(64), r.host(64)
		r.gate(r.s)
		r.ok(r.s.CopyOut(b, m))
		b.Bytes()
	}},
	{"look at a freed buffer", "after FreeHost", func(r *rig) {
		b := r.host(64)
		r.ok(r.dev.FreeHost(b))
		b.Bytes()
	}},
	{"look at the results of a launch in place before it is done", "host buffer is looked at before", func(r *rig) {
		b := r.host(64)
		r.gate(r.s)
		r.ok(r.launchInPlace(r.s, b))
		b.Bytes()
	}},
	{"free the results of a launch in place before it is done", "host buffer is freed before", func(r *rig) {
		b := r.host(64)
		r.gate(r.s)
		r.ok(r.launchInPlace(r.s, b))
		r.ok(r.dev.FreeHost(b))
	}},
	{"launch in place on a freed buffer", "used after it was freed", func(r *rig) {
		b := r.host(64)
		at := r.mapped(b)
		r.ok(r.dev.FreeHost(b))
		r.ok(r.launchTo(r.s, at))
	}},
	{"launch in place beyond a buffer's end", "never allocated", func(r *rig) {
		at := r.mapped(r.host(64))
		at.Addr += 256
		r.ok(r.launchTo(r.s, at))
	}},
	{"two streams write the same buffer in place", "in no order", func(r *rig) {
		b := r.host(64)
		r.gate(r.s)
		r.ok(r.launchInPlace(r.s, b))
		r.ok(r.launchInPlace(r.stream("other"), b))
	}},
	{"free a buffer before its copy is done", "host buffer is freed before", func(r *rig) {
		m, b := r.memory(64), r.host(64)
		r.gate(r.s)
		r.ok(r.s.CopyIn(m, b))
		r.ok(r.dev.FreeHost(b))
	}},
	{"free memory in use", "in use by stream s", func(r *rig) {
		m := r.memory(64)
		r.gate(r.s)
		r.ok(r.s.Fill(m, 1))
		r.ok(r.dev.Free(m))
	}},
	{"free pool memory in use by another stream", "stream other frees memory in use by stream s", func(r *rig) {
		p, m := r.poolMemory()
		r.gate(r.s)
		r.ok(r.s.Fill(m, 1))
		r.ok(p.Free(r.stream("other"), m))
	}},
	{"use memory after Free", "used after it was freed", func(r *rig) {
		m := r.memory(64)
		r.ok(r.dev.Free(m))
		r.ok(r.s.Fill(m, 1))
	}},
	{"use pool memory after Free", "used after it was freed", func(r *rig) {
		p, m := r.poolMemory()
		r.ok(p.Free(r.s, m))
		r.ok(r.s.Fill(m, 1))
	}},
	{"use memory beyond its end", "never allocated", func(r *rig) {
		_, m := r.poolMemory()
		r.ok(r.s.Fill(device.Memory{Addr: m.Addr, Bytes: m.Bytes + 1}, 1))
	}},
	{"launch on freed memory", "used after it was freed", func(r *rig) {
		k := r.kernel("func")
		result := r.memory(64)
		r.ok(r.dev.Free(result))
		r.ok(r.s.Launch(k, device.LaunchArgs{Shape: device.Shape{}, Offsets: r.memory(4), Result: result}))
	}},
	{"double free", "not a whole live allocation", func(r *rig) {
		m := r.memory(64)
		r.ok(r.dev.Free(m))
		r.ok(r.dev.Free(m))
	}},
	{"double free of pool memory", "not a whole live allocation", func(r *rig) {
		p, m := r.poolMemory()
		r.ok(p.Free(r.s, m))
		r.ok(p.Free(r.s, m))
	}},
	{"double free of a buffer", "not a whole live allocation", func(r *rig) {
		b := r.host(64)
		r.ok(r.dev.FreeHost(b))
		r.ok(r.dev.FreeHost(b))
	}},
	{"wait for an event never recorded", "never recorded", func(r *rig) {
		e, err := r.dev.NewEvent(0)
		r.ok(err)
		r.ok(r.s.Wait(e))
	}},
	{"two streams write the same memory", "in no order", func(r *rig) {
		m := r.memory(64)
		r.gate(r.s)
		r.ok(r.s.Fill(m, 1))
		r.ok(r.stream("other").Fill(m, 2))
	}},
	{"one stream reads what another one writes", "in no order", func(r *rig) {
		m, b, other := r.memory(64), r.host(64), r.stream("other")
		r.gate(r.s)
		r.ok(r.s.Fill(m, 1))
		e, err := r.dev.NewEvent(0)
		r.ok(err)
		r.ok(other.Record(e)) // the event is recorded on the wrong stream
		r.ok(other.Wait(e))
		r.ok(other.CopyOut(b, m))
	}},
	{"two streams copy out to the same buffer", "in no order", func(r *rig) {
		m, b := r.memory(64), r.host(64)
		r.gate(r.s)
		r.ok(r.s.CopyOut(b, m))
		r.ok(r.stream("other").CopyOut(b, m))
	}},
}

// poolMemory returns memory of a pool, from the middle of a segment.
func (r *rig) poolMemory() (device.Pool, device.Memory) {
	r.Helper()
	p, err := r.dev.NewPool(device.PoolOptions{})
	r.ok(err)
	_, err = p.Alloc(r.s, 1000)
	r.ok(err)
	m, err := p.Alloc(r.s, 1000)
	r.ok(err)
	return p, m
}

func TestMisusePanics(t *testing.T) {
	for _, mis := range misuses {
		t.Run(mis.name, func(t *testing.T) {
			r := newRig(t, spread)
			open := r.gate(r.stream("unrelated"))
			said := panicOf(func() { mis.make(r) })
			if !strings.Contains(said, mis.says) {
				t.Errorf("the panic is %q, want %q in it", said, mis.says)
			}
			open()
			r.openGates()
			r.ok(r.s.Synchronize()) // a panic in the call leaves the device unchanged
		})
	}
}

// panicOf returns the panic of fn as text, or an empty string if it doesn't panic.
func panicOf(fn func()) (said string) {
	defer func() {
		if v := recover(); v != nil {
			said = fmt.Sprint(v)
		}
	}()
	fn()
	return ""
}

// TestOrderedUseIsNoMisuse makes the calls of misuses in a safe order, which events enforce.
func TestOrderedUseIsNoMisuse(t *testing.T) {
	r := newRig(t)
	p, m := r.poolMemory()
	b, other, third := r.host(1000), r.stream("other"), r.stream("third")
	e, err := r.dev.NewEvent(0)
	r.ok(err)
	r.gate(r.s)
	r.ok(r.s.Fill(m, 7))
	r.ok(r.s.CopyOut(b, m))
	r.ok(r.s.Record(e))
	r.ok(other.Wait(e))
	r.ok(other.CopyOut(b, m)) // ordered after the first copy to the same buffer
	r.ok(other.Record(e))
	r.ok(third.Wait(e)) // ordered after the second stream, and so after the first
	r.ok(p.Free(third, m))
	r.openGates()
	r.ok(third.Synchronize())
	if !bytes.Equal(b.Bytes(), bytes.Repeat([]byte{7}, 1000)) {
		t.Error("ordered copies returned other bytes than the fill")
	}
	r.ok(r.dev.FreeHost(b))
}

// TestSharedReadIsNoMisuse checks that two streams may read the same memory at once.
func TestSharedReadIsNoMisuse(t *testing.T) {
	r := newRig(t)
	m, from, other := r.memory(64), r.host(64), r.stream("other")
	r.ok(r.s.CopyIn(m, from))
	r.ok(r.s.Synchronize())
	r.gate(r.s)
	r.ok(r.s.CopyOut(r.host(64), m))
	r.ok(other.CopyOut(r.host(64), m))
	r.ok(r.s.CopyIn(r.memory(64), from))
	r.ok(other.CopyIn(r.memory(64), from))
	r.openGates()
}

// TestPoison checks that memory that must not be read contains no valid data.
func TestPoison(t *testing.T) {
	const poison = 0xDB
	r := newRig(t)
	want := bytes.Repeat([]byte{poison}, 1000)
	_, m := r.poolMemory()
	b := r.host(1000)
	clear(b.Bytes())
	r.ok(r.s.CopyOut(b, m))
	r.ok(r.s.Synchronize())
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("fresh device memory is not poisoned")
	}

	p, m := r.poolMemory()
	r.ok(r.s.Fill(m, 1))
	r.ok(p.Free(r.s, m))
	again, err := p.Alloc(r.s, 1000)
	r.ok(err)
	if again != m {
		t.Fatalf("the stream's own memory was not allocated again: %v, then %v", m, again)
	}
	clear(b.Bytes())
	r.ok(r.s.CopyOut(b, again))
	r.ok(r.s.Synchronize())
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("freed device memory is not poisoned")
	}

	clear(b.Bytes())
	held := b.Bytes() // must not be read while the copy is queued
	r.gate(r.s)
	r.ok(r.s.CopyOut(b, again))
	if !bytes.Equal(held, want) {
		t.Error("the destination of a queued copy is not poisoned")
	}
	r.openGates()
}

// TestPoisonInPlace does the same as TestPoison for results that a queued launch will write.
func TestPoisonInPlace(t *testing.T) {
	const poison = 0xDB
	r := newRig(t, spread)
	b := r.host(64)
	clear(b.Bytes())
	held := b.Bytes() // must not be read while the launch is queued
	open := r.gate(r.s)
	r.ok(r.launchInPlace(r.s, b))
	if want := bytes.Repeat([]byte{poison}, 64); !bytes.Equal(held, want) {
		t.Error("the results of a queued launch in place are not poisoned")
	}
	open()
	r.ok(r.s.Synchronize())
	if held[63] != 64 {
		t.Errorf("the last byte of the result is %d, want 64", held[63])
	}
}
