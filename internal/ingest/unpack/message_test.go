package unpack

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
)

type input []byte

func (in input) Data() []byte         { return in }
func (in input) Headers() nats.Header { return nil }

type limited struct{ limit, used int64 }

func (l *limited) Try(n int64) bool {
	if l.used+n > l.limit {
		return false
	}
	l.used += n
	return true
}

func (l *limited) Force(n int64) { l.used += n }
func (l *limited) Give(n int64)  { l.used -= n }

// TestAMessageHoldsItsMemory shows that a message holds the memory of its body however it is unpacked, and returns
// all of it.
func TestAMessageHoldsItsMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	body := bytes.Repeat(append(bytes.Repeat([]byte("a"), 127), '\n'), size/128)
	packed := gzipped(t, body)
	if size < 100*len(packed) {
		t.Fatalf("%d bytes are too many: the ratio must be far from the guess", len(packed))
	}
	settings := Options{
		Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxBytes: 64 << 20}, Decompress: compression.Gzip, Results: jsonResults(t),
	}
	for _, c := range []struct {
		name   string
		limit  int64
		data   []byte
		open   func(*Message) bool
		opened bool
		held   bool // whether it holds memory afterwards
	}{
		{"with enough", 64 << 20, packed, (*Message).TryOpen, true, true},
		{"with too little", 512 << 10, packed, (*Message).TryOpen, false, false},
		{"without waiting", 512 << 10, packed, func(m *Message) bool { m.Open(); return true }, true, true},
		{"what is no gzip", 64 << 20, packed[:len(packed)/2], (*Message).TryOpen, true, false},
	} {
		memory := &limited{limit: c.limit}
		m := &Message{u: New(settings, memory, func(int64, int64) bool { return false }), in: input(c.data)}
		opened := c.open(m)
		used, body := memory.used, 0
		if m.buffers != nil {
			body = cap(m.body)
		}
		if opened != c.opened || c.held && (used < size || used < int64(body) || used > 16*size) || !c.held && (used > 0 || body > 0) {
			t.Errorf("%s: opened %v with %d bytes for a body of %d", c.name, opened, used, body)
		}
		m.Drop()
		if memory.used != 0 {
			t.Errorf("%s: %d bytes are not given back", c.name, memory.used)
		}
	}
}

// TestIdleBuffersAreBounded shows that idle buffers stay within the limit for kept memory. A small message that
// reuses large buffers holds all of their memory.
func TestIdleBuffersAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	memory, kept := &limited{limit: 1 << 40}, &limited{limit: limit}
	u := New(Options{Split: frame.Splitter{Framing: frame.NewlineDelimited}, Results: jsonResults(t)}, memory, func(before, now int64) bool {
		kept.Give(before)
		if kept.Try(now) {
			return true
		}
		kept.Force(before)
		return false
	})
	open := func(lines int) *Message {
		m := &Message{u: u, in: input(bytes.Repeat([]byte{'\n'}, lines))}
		m.Open()
		return m
	}
	for _, lines := range []int{1, 100, 20_000, 1_000_000} {
		var messages [20]*Message
		for i := range messages {
			messages[i] = open(lines)
		}
		for _, m := range messages {
			m.Drop()
			m.Recycle()
		}
		var idle int64
		for _, b := range u.idle.stack {
			idle += b.size()
		}
		if idle != kept.used || idle > limit || idle == 0 || memory.used != 0 {
			t.Errorf("%d lines: idle buffers have %d bytes, %d are counted, and %d may be", lines, idle, kept.used, limit)
		}
	}
	stack := u.idle.stack
	large := stack[len(stack)-1].size()
	if m := open(1); m.Cost() < large || memory.used != m.Cost() {
		t.Errorf("a message of one record takes %d bytes, %d are counted, and its buffers have %d", m.Cost(), memory.used, large)
	}
	if stack[len(stack)-1] != nil {
		t.Error("buffers that a message has taken are still among the idle ones, and would be kept after the message")
	}
}

// gzipped compresses data without declaring its size.
func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
