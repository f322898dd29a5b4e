package inflight

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	arrowmemory "github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/memory"
)

type input []byte

func (in input) Data() []byte         { return in }
func (in input) Headers() nats.Header { return nil }

// budgetFor returns a budget for messages in batches of 2 MiB.
func budgetFor(t *testing.T, m memory.Messages) *memory.Budget {
	t.Helper()
	m.Operators = crc32c(t)
	b, err := memory.New(memory.Worker{Messages: m, Slots: 1, BatchPayloads: 1, BatchBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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
	settings := memory.Messages{Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxBytes: 64 << 20}, Decompress: compression.Gzip}
	for _, c := range []struct {
		name   string
		limit  int64
		data   []byte
		open   func(*Unpacked) bool
		opened bool
		held   bool // whether it holds memory afterwards
	}{
		{"with enough", 64 << 20, packed, (*Unpacked).TryOpen, true, true},
		{"with too little", 512 << 10, packed, (*Unpacked).TryOpen, false, false},
		{"without waiting", 512 << 10, packed, func(m *Unpacked) bool { m.Open(); return true }, true, true},
		{"what is no gzip", 64 << 20, packed[:len(packed)/2], (*Unpacked).TryOpen, true, false},
	} {
		budget := budgetFor(t, settings)
		budget.Limit = c.limit
		budget.Add(nil, 1, 0) // otherwise any message fits
		m := &Unpacked{u: NewUnpacker(budget), in: input(c.data)}
		opened := c.open(m)
		used, body := budget.Memory().Used-1, 0
		if m.buffers != nil {
			body = cap(m.body)
		}
		if opened != c.opened || c.held && (used < size || used < int64(body) || used > 16*size) || !c.held && (used > 0 || body > 0) {
			t.Errorf("%s: opened %v with %d bytes for a body of %d", c.name, opened, used, body)
		}
		m.Drop()
		if used := budget.Memory().Used; used != 1 {
			t.Errorf("%s: %d bytes are not given back", c.name, used-1)
		}
	}
}

// TestDeadLettersOfRowsTakeMemory shows that the budget counts the buffers that are decompressed for dead letters.
func TestDeadLettersOfRowsTakeMemory(t *testing.T) {
	t.Parallel()
	const rows, length = 100, 10_000
	text := array.NewStringBuilder(arrowmemory.DefaultAllocator)
	for range rows {
		text.Append(strings.Repeat("x", length))
	}
	columns := []arrow.Array{text.NewArray()}
	schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil)
	var body bytes.Buffer
	w := ipc.NewWriter(&body, ipc.WithSchema(schema), ipc.WithZstd())
	if err := errors.Join(w.Write(array.NewRecordBatch(schema, columns, rows)), w.Close()); err != nil {
		t.Fatal(err)
	}
	budget := budgetFor(t, memory.Messages{Split: frame.Splitter{Framing: frame.Arrow}})
	m := &Unpacked{u: NewUnpacker(budget), in: input(body.Bytes())}
	m.Open()
	if m.Fault() != nil || m.Records() != rows {
		t.Fatalf("%d records, %v", m.Records(), m.Fault())
	}
	before := budget.Memory().Used
	for i := range 3 {
		if letter, _ := m.Letter(i); len(letter) < length {
			t.Fatalf("the dead letter has %d bytes", len(letter))
		}
		if more := budget.Memory().Used - before; more < rows*length || more > rows*length+1<<10 {
			t.Errorf("after %d dead letters, the budget counts %d bytes more, want about %d", i+1, more, rows*length)
		}
	}
	if m.Drop(); budget.Memory().Used != 0 {
		t.Errorf("%d bytes are not given back", budget.Memory().Used)
	}
}

// TestIdleBuffersAreBounded shows that idle buffers stay within the limit for kept memory. A small message that
// reuses large buffers holds all of their memory.
func TestIdleBuffersAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	budget := budgetFor(t, memory.Messages{Split: frame.Splitter{Framing: frame.NewlineDelimited}}) // keeps an eighth of two batches and their bookkeeping
	u := NewUnpacker(budget)
	open := func(lines int) *Unpacked {
		m := &Unpacked{u: u, in: input(bytes.Repeat([]byte{'\n'}, lines))}
		m.Open()
		return m
	}
	for _, lines := range []int{1, 100, 20_000, 1_000_000} {
		var messages [20]*Unpacked
		for i := range messages {
			messages[i] = open(lines)
		}
		for _, m := range messages {
			m.Drop()
			m.Recycle()
		}
		var idle int64
		for _, b := range u.idle {
			idle += b.size()
		}
		if m := budget.Memory(); idle != m.Idle || idle > limit || idle == 0 || m.Used != 0 {
			t.Errorf("%d lines: idle buffers have %d bytes, %d are counted, and %d may be", lines, idle, m.Idle, limit)
		}
	}
	stack := u.idle
	large := stack[len(stack)-1].size()
	if took := open(1).Memory.Bytes; took < large || budget.Memory().Used != took {
		t.Errorf("a message of one record takes %d bytes, %d are counted, and its buffers have %d", took, budget.Memory().Used, large)
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
	o := memory.Messages{Split: frame.Splitter{Framing: frame.Auto, MaxBytes: 1 << 20}, Decompress: compression.Auto}
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
		"only an encoding":           {nats.Header{"Content-Encoding": {"gzip"}}, packed, 1, ""},
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
		m := &Unpacked{u: NewUnpacker(budgetFor(t, o)), in: in}
		m.Open()
		var fault *frame.Error
		if got := m.Records(); got != c.records || (m.Fault() == nil) != (c.records > 0) || errors.As(m.Fault(), &fault) != (c.reason != "") {
			t.Errorf("%s: %d records, %v", name, got, m.Fault())
		}
		if plain, want := m.u.IsPlain(in), c.records == 1 && c.body == lines; plain != want {
			t.Errorf("%s: it counts as one uncompressed record: %v, want %v", name, plain, want)
		}
	}
	// No setting requires the headers here.
	o.Split.Framing, o.Decompress = frame.NewlineDelimited, compression.None
	m := &Unpacked{u: NewUnpacker(budgetFor(t, o)), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); m.Records() != 2 {
		t.Errorf("%d records, %v, want 2 whatever the headers say", m.Records(), m.Fault())
	}
	o.Split.Framing, o.Decompress = frame.None, compression.Auto
	if !NewUnpacker(budgetFor(t, o)).IsPlain(headed{input(lines), nats.Header{"Content-Type": {ndjson}}}) {
		t.Error("the type counts although framing is off")
	}
	o.Split.Framing, o.Decompress = frame.Auto, compression.None
	m = &Unpacked{u: NewUnpacker(budgetFor(t, o)), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); !errors.As(m.Fault(), new(*frame.Error)) {
		t.Errorf("%d records, %v, want a fault of the frame", m.Records(), m.Fault())
	}
}
