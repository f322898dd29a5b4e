package devkit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/internal/corpus"
	"millrace/internal/device"
)

// The parts of a batch in memory are the records, the offsets, scratch and the result, with a guard before, between and after them. A guard
// contains noise. If code reads a guard, its result changes with the noise. If code writes to a guard, the suite detects the changed noise.

const (
	guardBytes = 4096
	partAlign  = 256 // alignment of each part except the records, in bytes
)

// span is a part of a batch: some bytes at a position.
type span struct{ at, bytes int }

func (s span) end() int { return s.at + s.bytes }

func (s span) slice(b []byte) []byte { return b[s.at:s.end()] }

// places has the positions of the parts of a batch.
type places struct {
	rows, offsets, scratch, result span
	bytes                          int // total size
}

// place returns the places for a batch whose records begin `shift` bytes after an aligned address.
func place(shape device.Shape, needs device.Needs, shift int) (p places) {
	at := 0
	next := func(bytes, shift int) span {
		s := span{(at+guardBytes+partAlign-1)/partAlign*partAlign + shift, bytes}
		at = s.end()
		return s
	}
	p.rows = next(shape.Bytes, shift)
	p.offsets = next(4*(shape.Rows+1), 0)
	p.scratch = next(needs.Scratch, 0)
	p.result = next(needs.Result, 0)
	p.bytes = at + guardBytes
	return p
}

// contents describes what memory contains before a run, except for the batch.
type contents struct {
	noise  byte // XORed with each byte of the guards
	poison byte // value of each byte of scratch and result
	shift  int  // distance of the records from an aligned address, in bytes
	mapped bool // whether records, offsets and result are in host memory
}

// noise is the contents of the guards.
var noise = corpus.Bytes(7, guardBytes)

// fill writes the batch, the guards and the poison.
func (p places) fill(memory []byte, rows [][]byte, c contents) {
	p.eachGuard(func(g span) {
		guard := g.slice(memory)
		for i := range guard {
			guard[i] = noise[i%guardBytes] ^ c.noise
		}
	})
	data, table := p.rows.slice(memory), p.offsets.slice(memory)
	end := 0
	binary.LittleEndian.PutUint32(table, 0)
	for i, row := range rows {
		end += copy(data[end:], row)
		binary.LittleEndian.PutUint32(table[4*(i+1):], uint32(end))
	}
	for _, s := range []span{p.scratch, p.result} {
		part := s.slice(memory)
		for i := range part {
			part[i] = c.poison
		}
	}
}

// eachGuard calls fn for every guard.
func (p places) eachGuard(fn func(span)) {
	at := 0
	for _, s := range []span{p.rows, p.offsets, p.scratch, p.result, {p.bytes, 0}} {
		fn(span{at, s.at - at})
		at = s.end()
	}
}

// damage compares memory before and after a run, and describes the first forbidden change. It returns "" if there is no such change.
func (p places) damage(before, after []byte) string {
	if i := difference(p.rows.slice(before), p.rows.slice(after)); i >= 0 {
		return fmt.Sprintf("it changed byte %d of the batch: records are read only", i)
	}
	if i := difference(p.offsets.slice(before), p.offsets.slice(after)); i >= 0 {
		return "it changed the table of offsets"
	}
	found := ""
	p.eachGuard(func(g span) {
		if i := difference(g.slice(before), g.slice(after)); i >= 0 && found == "" {
			found = "it wrote outside its memory: " + p.where(g.at+i)
		}
	})
	return found
}

// where describes a position in a guard relative to the nearest part that an operator writes.
func (p places) where(at int) string {
	switch {
	case at >= p.result.end():
		return fmt.Sprintf("%d bytes behind the end of its result of %d bytes", at-p.result.end()+1, p.result.bytes)
	case at >= p.result.at-guardBytes/2:
		return fmt.Sprintf("%d bytes before its result", p.result.at-at)
	case at >= p.scratch.end():
		return fmt.Sprintf("%d bytes behind the end of its scratch memory of %d bytes", at-p.scratch.end()+1, p.scratch.bytes)
	case at >= p.scratch.at-guardBytes/2:
		return fmt.Sprintf("%d bytes before its scratch memory", p.scratch.at-at)
	case at >= p.offsets.end():
		return "behind the table of offsets"
	case at >= p.rows.end():
		return fmt.Sprintf("%d bytes behind the batch", at-p.rows.end()+1)
	}
	return fmt.Sprintf("%d bytes before the batch", p.rows.at-at)
}

// difference returns the index of the first byte that differs, or -1.
func difference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// buffers is the memory of a Runner. It grows with the largest batch.
type buffers struct {
	device  device.Device
	apart   bool
	in, out device.HostBuffer // contents of device memory before and after a run
	memory  device.Memory
	parts   []device.Memory // parts of the current batch, if apart
}

// grow enlarges the buffers to at least the given number of bytes. No work may be in flight.
func (b *buffers) grow(bytes int) (err error) {
	if b.in.Len() >= bytes {
		return nil
	}
	if err := b.free(); err != nil {
		return err
	}
	bytes += bytes / 2
	for _, h := range []*device.HostBuffer{&b.in, &b.out} {
		if *h, err = b.device.AllocHost(bytes); err != nil {
			return err
		}
	}
	if !b.apart {
		b.memory, err = b.device.Alloc(bytes)
	}
	return err
}

// part returns device memory for a part of a batch.
func (b *buffers) part(s span) (device.Memory, error) {
	if !b.apart {
		return b.memory.Slice(s.at, s.bytes), nil
	}
	m, err := b.device.Alloc(max(s.bytes, 1))
	if err != nil {
		return device.Memory{}, err
	}
	b.parts = append(b.parts, m)
	return m.Slice(0, s.bytes), nil
}

func (b *buffers) freeParts() error {
	var errs []error
	for _, m := range b.parts {
		errs = append(errs, b.device.Free(m))
	}
	b.parts = b.parts[:0]
	return errors.Join(errs...)
}

func (b *buffers) free() error {
	errs := []error{b.freeParts()}
	for _, h := range []*device.HostBuffer{&b.in, &b.out} {
		if h.Len() > 0 {
			errs = append(errs, b.device.FreeHost(*h))
		}
		*h = device.HostBuffer{}
	}
	if b.memory.Bytes > 0 {
		errs = append(errs, b.device.Free(b.memory))
	}
	b.memory = device.Memory{}
	return errors.Join(errs...)
}
