package unpack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/operator"
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

// jsonResults returns the JSON results of one operator.
func jsonResults(t *testing.T) Results {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return Results{Operators: ops, Format: operator.JSON}
}

// TestMaxBytesCoversALargestMessage shows that the maximum memory for a message depends on the limits of frames and on
// framing and compression.
func TestMaxBytesCoversALargestMessage(t *testing.T) {
	t.Parallel()
	const payload, limit, records = 1 << 20, 64 << 20, 1000
	plain := jsonResults(t)
	twice := plain
	twice.Compressed = true
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		results    Results
		records    int
		want       int64
	}{
		"neither framed nor compressed":   {frame.None, compression.None, plain, records, 0},
		"framed":                          {frame.NewlineDelimited, compression.None, plain, records, plain.cost(records, 0)},
		"framed, at most a record a byte": {frame.VarintLengthDelimited, compression.None, plain, 2 * payload, plain.cost(payload+1, 0)},
		"compressed":                      {frame.None, compression.Gzip, plain, records, limit + plain.cost(1, 0)},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, plain, records, limit + plain.cost(records, 0)},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, plain, records, limit + plain.cost(records, 0)},
		"by the headers":                  {frame.Auto, compression.Auto, plain, records, 2*limit + plain.cost(records, 0)},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, twice, records, twice.cost(records, 0)},
	} {
		o := Options{Split: frame.Splitter{Framing: c.framing, MaxRecords: c.records, MaxBytes: limit}, Decompress: c.decompress, Results: c.results}
		if got := o.MaxBytes(payload); got != c.want {
			t.Errorf("%s: a message takes %d bytes, want %d", name, got, c.want)
		}
	}
	if plain, twice := plain.cost(records, 0), twice.cost(records, 0); twice <= plain {
		t.Errorf("compressed results take %d bytes, and others %d", twice, plain)
	}
}

type variable struct{ operator.Operator }

func (variable) MaxStrings() (maximum, perByte int)                    { return 10, 3 }
func (variable) AppendStrings(dst, _ []byte, _ []uint32, _ int) []byte { return dst }

// TestCostsCountByteStrings shows that byte strings cost their size in the table, and twice their size in the JSON
// body.
func TestCostsCountByteStrings(t *testing.T) {
	t.Parallel()
	plain := jsonResults(t)
	texts := plain
	texts.Operators = []operator.Operator{variable{plain.Operators[0]}}
	const records, bytes = 1000, 1 << 20
	if got, minimum := texts.cost(records, bytes)-plain.cost(records, bytes), int64(3*(10*records+3*bytes)); got < minimum {
		t.Errorf("byte strings take %d bytes, want at least %d", got, minimum)
	}
	if got, minimum := texts.cost(records, 2*bytes)-texts.cost(records, bytes), int64(3*3*bytes); got < minimum {
		t.Errorf("a MiB more of records takes %d bytes, want at least %d", got, minimum)
	}
	o := Options{Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: records, MaxBytes: 64 << 20}, Results: texts}
	if got, want := o.MaxBytes(bytes), texts.cost(records, bytes); got != want {
		t.Errorf("the largest message takes %d bytes, want %d", got, want)
	}
}

type headed struct {
	input
	header nats.Header
}

func (h headed) Headers() nats.Header { return h.header }

// TestHeadersInAnySpelling shows that header names may have any case, and a header may span several lines.
func TestHeadersInAnySpelling(t *testing.T) {
	t.Parallel()
	const lines = "a\nb\n"
	packed := string(gzipped(t, []byte(lines)))
	twice := string(gzipped(t, []byte(packed)))
	o := Options{Split: frame.Splitter{Framing: frame.Auto, MaxBytes: 1 << 20, MaxRecord: 1 << 20}, Decompress: compression.Auto, Results: jsonResults(t)}
	const ndjson = "application/x-ndjson"
	for name, c := range map[string]struct {
		header  nats.Header
		body    string
		records int    // 0 means a fault
		reason  string // reason of a fault of the frame
	}{
		"as usual":                   {nats.Header{"Content-Type": {ndjson}}, lines, 2, ""},
		"lower case":                 {nats.Header{"content-type": {ndjson}}, lines, 2, ""},
		"upper case":                 {nats.Header{"CONTENT-TYPE": {ndjson}, "CONTENT-ENCODING": {"gzip"}}, packed, 2, ""},
		"none":                       {nil, lines, 1, ""},
		"another type":               {nats.Header{"content-type": {"text/plain"}}, lines, 1, ""},
		"the type on two lines":      {nats.Header{"Content-Type": {ndjson, ndjson}}, lines, 2, ""},
		"two types":                  {nats.Header{"Content-Type": {ndjson}, "content-type": {"text/plain"}}, lines, 0, "invalid_frame"},
		"two encodings on two lines": {nats.Header{"Content-Encoding": {"gzip", "gzip"}}, twice, 0, ""},
		"two encodings on one line":  {nats.Header{"Content-Encoding": {"gzip, gzip"}}, twice, 0, ""},
		"two spellings":              {nats.Header{"Content-Encoding": {"gzip"}, "content-encoding": {"gzip"}}, twice, 0, ""},
		"an empty encoding":          {nats.Header{"Content-Encoding": {""}}, lines, 1, ""},
		"headers that can't be read": {jsapi.Unreadable, lines, 0, ""},
	} {
		in := headed{input(c.body), c.header}
		m := &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: in}
		m.Open()
		var fault *frame.Error
		if got := m.Records(); got != c.records || (m.Fault() == nil) != (c.records > 0) || errors.As(m.Fault(), &fault) != (c.reason != "") {
			t.Errorf("%s: %d records, %v", name, got, m.Fault())
		}
		if plain := o.IsPlain(in); plain && (c.records != 1 || m.Fault() != nil) {
			t.Errorf("%s: it counts as one record", name)
		}
	}
	// No setting requires the headers here.
	o.Split.Framing, o.Decompress = frame.NewlineDelimited, compression.None
	m := &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); m.Records() != 2 {
		t.Errorf("%d records, %v, want 2 whatever the headers say", m.Records(), m.Fault())
	}
	o.Split.Framing, o.Decompress = frame.Auto, compression.None
	m = &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); !errors.As(m.Fault(), new(*frame.Error)) {
		t.Errorf("%d records, %v, want a fault of the frame", m.Records(), m.Fault())
	}
}
