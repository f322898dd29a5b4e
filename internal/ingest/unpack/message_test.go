package unpack

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
)

// input is a message without headers.
type input []byte

func (in input) Data() []byte         { return in }
func (in input) Headers() nats.Header { return nil }

// limited is Memory with a limit.
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

// TestAMessageHoldsItsMemory: whatever way it is unpacked, it holds as much memory as its body takes, and gives back all.
func TestAMessageHoldsItsMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	body := bytes.Repeat(append(bytes.Repeat([]byte("a"), 127), '\n'), size/128)
	packed := gzipped(t, body)
	if size < 100*len(packed) {
		t.Fatalf("%d bytes are too many: the ratio must be far from the guess", len(packed))
	}
	settings := Settings{
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
		memory, m := &limited{limit: c.limit}, &Message{}
		m.reset(New(settings, memory), input(c.data))
		opened := c.open(m)
		used := memory.used
		if opened != c.opened || c.held && (used < size || used < int64(cap(m.body)) || used > 16*size) || !c.held && (used > 0 || cap(m.body) > 0) {
			t.Errorf("%s: opened %v with %d bytes for a body of %d", c.name, opened, used, cap(m.body))
		}
		m.Drop()
		if memory.used != 0 {
			t.Errorf("%s: %d bytes are not given back", c.name, memory.used)
		}
	}
}

// gzipped compresses data. It does not declare its size.
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
