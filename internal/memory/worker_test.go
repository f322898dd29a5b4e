package memory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

func crc32c(t *testing.T) []operator.Operator {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// worker returns a worker with JSON results and batches of 1 MiB.
func worker(t *testing.T) Worker {
	t.Helper()
	return Worker{
		Messages: Messages{Format: operator.JSON, Operators: crc32c(t)}, MaxPayload: 1 << 20,
		Pipelines: 1, Slots: 4, BatchPayloads: 1024, BatchBytes: 1 << 20, Consumers: 1,
		Requests: Requests{Messages: RequestMessages, Min: RequestBytes}, Connections: 2,
	}
}

// TestAWorkerDividesItsMemory checks that used memory, idle buffers and prefetched messages never exceed the limit in total.
// Prefetched messages use at most a quarter, unless the largest messages need more.
func TestAWorkerDividesItsMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ consumers, mib int }{{1, 32}, {1, 64}, {1, 2048}, {8, 160}, {8, 512}, {64, 1024}} {
		w := worker(t)
		w.Consumers, w.Limit = c.consumers, int64(c.mib)<<20
		b, err := New(w)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if fixed, _, _ := w.parts(); b.Limit+b.idleLimit+fixed > w.Limit {
			t.Errorf("%+v: the shares may take %d MiB in total", c, (b.Limit+b.idleLimit+fixed)>>20)
		}
		r := w.PullRequests()
		if bytes := r.Bytes(w.MaxPayload); bytes < int(w.MaxPayload) || r.Messages < minMessages {
			t.Errorf("%+v: a request is for %d messages and %d bytes: the largest message stalls the consumer", c, r.Messages, bytes)
		}
		least := Requests{Messages: minMessages}.memory(w.MaxPayload)
		if pulled := int64(c.consumers) * r.memory(w.MaxPayload); pulled > max(w.Limit/pullShare, int64(c.consumers)*least) {
			t.Errorf("%+v: prefetched messages may take %d MiB", c, pulled>>20)
		}
	}
	w := worker(t)
	w.Limit = 12 << 20
	if _, err := New(w); !errors.As(err, new(*Error)) {
		t.Errorf("with too little memory: %v, want an *Error", err)
	}
}

// TestTheMemoryCoversALargestFrame checks that the minimum memory grows with the limits of frames, for each pipeline. Messages in
// flight must leave that memory free.
func TestTheMemoryCoversALargestFrame(t *testing.T) {
	t.Parallel()
	const payload, limit, records = 1 << 20, 64 << 20, 1000
	plain := Messages{Format: operator.JSON, Operators: crc32c(t)}
	twice := plain
	twice.Compress = compression.Zstd
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		messages   Messages
		records    int
		want       int64
	}{
		"neither framed nor compressed":   {frame.None, compression.None, plain, records, 0},
		"framed":                          {frame.NewlineDelimited, compression.None, plain, records, plain.FrameResults(records, 0, 0, 0)},
		"framed, at most a record a byte": {frame.VarintLengthDelimited, compression.None, plain, 2 * payload, plain.FrameResults(payload+1, 0, 0, 0)},
		"compressed":                      {frame.None, compression.Gzip, plain, records, limit + plain.FrameResults(1, 0, 0, 0)},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, plain, records, limit + plain.FrameResults(records, 0, 0, 0)},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, plain, records, limit + plain.FrameResults(records, 0, 0, 0)},
		"by the headers":                  {frame.Auto, compression.Auto, plain, records, 2*limit + plain.FrameResults(records, 0, 0, 0)},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, twice, records, twice.FrameResults(records, 0, 0, 0)},
	} {
		w := worker(t)
		w.Messages, w.MaxPayload, w.Pipelines = c.messages, payload, 2
		w.Split, w.Decompress = frame.Splitter{Framing: c.framing, MaxRecords: c.records, MaxBytes: limit}, c.decompress
		w.Requests = Requests{Messages: minMessages} // the same with every limit
		fixed, frames, least := w.parts()
		if frames != 2*c.want {
			t.Errorf("%s: the largest frames take %d bytes, want %d", name, frames, 2*c.want)
		}
		least += fixed + frames
		w.Limit = least - 1
		err := w.Check()
		if !errors.As(err, new(*Error)) || strings.Contains(fmt.Sprint(err), "MILLRACE_FRAME_BYTES") != w.Splits() {
			t.Errorf("%s: with one byte less than necessary: %v", name, err)
		}
		w.Limit = least
		b, err := New(w)
		if err != nil {
			t.Errorf("%s: with %d bytes: %v", name, least, err)
			continue
		}
		if all := b.Limit + b.idleLimit + fixed + frames; all > w.Limit {
			t.Errorf("%s: with the largest frames, the shares may take %d bytes of %d", name, all, w.Limit)
		}
	}
	w := worker(t)
	w.MaxPayload = payload
	for name, c := range map[string]struct {
		split frame.Splitter
		want  int64 // in addition to the frame's results
	}{
		"a field of one object":     {frame.Splitter{Field: "text"}, payload},
		"a field of lines":          {frame.Splitter{Framing: frame.NewlineDelimited, Field: "text"}, payload},
		"a column":                  {frame.Splitter{Framing: frame.Arrow, Field: "text"}, limit},
		"kept fields of one object": {frame.Splitter{Keep: []string{"id"}}, 0},
		"kept columns":              {frame.Splitter{Framing: frame.Arrow, Keep: []string{"id"}}, 3 * limit},
	} {
		w.Split = c.split
		w.Split.MaxRecords, w.Split.MaxBytes = records, limit
		content, most, kept := int64(payload), records, int64(0)
		if c.split.Framing == frame.Arrow {
			content = limit
		}
		if c.split.Framing == frame.None {
			content, most = payload, 1
		}
		if len(c.split.Keep) > 0 {
			kept = content
		}
		if got, want := w.largestFrame(payload), c.want+w.FrameResults(most, content, kept, content); got != want || !w.Splits() {
			t.Errorf("%s: the largest frame takes %d bytes, want %d", name, got, want)
		}
	}
	w.Split, w.Format = frame.Splitter{Framing: frame.Arrow, Annotate: "millrace", MaxRecords: records, MaxBytes: limit}, operator.Annotated
	if got, want := w.largestFrame(payload), limit+w.FrameResults(records, limit, 0, frame.RowFactor*limit); got != want {
		t.Errorf("the largest frame of annotated rows takes %d bytes, want %d", got, want)
	}
	if plain, twice := plain.FrameResults(records, 0, 0, 0), twice.FrameResults(records, 0, 0, 0); twice <= plain {
		t.Errorf("compressed results need %d bytes, and uncompressed results need %d", twice, plain)
	}
}

// TestKeysCostMemory: with a stateful operator every message has a table, which has keys and values.
func TestKeysCostMemory(t *testing.T) {
	t.Parallel()
	w := worker(t)
	if w.Splits() {
		t.Error("every message has a table without a stateful operator")
	}
	op, err := operator.Parse("neardup")
	if err != nil {
		t.Fatal(err)
	}
	w.Operators = []operator.Operator{op}
	const keys, value = 160, 24
	if one, more := w.FrameResults(1, 0, 0, 0), w.FrameResults(1001, 0, 0, 0); !w.Splits() || more-one < 1000*(keys+value) {
		t.Errorf("1,000 records with keys need %d bytes, want at least %d", more-one, 1000*(keys+value))
	}
}

type variable struct{ operator.Operator }

func (variable) MaxStrings() (maximum, perByte int)                    { return 100, 3 }
func (variable) AppendStrings(dst, _ []byte, _ []uint32, _ int) []byte { return dst }

// TestByteStringsCostMemory checks that the memory of a delivery, the minimum memory, and the memory of a frame include the longest
// byte strings. JSON doubles their size.
func TestByteStringsCostMemory(t *testing.T) {
	t.Parallel()
	plain := worker(t)
	texts := plain
	texts.Operators = []operator.Operator{variable{plain.Operators[0]}}
	none, without := plain.delivery()
	some, perByte := texts.delivery()
	if some-none < 200 || perByte < 6 || without != 0 {
		t.Errorf("the byte strings of an empty payload take %d bytes, and each byte of payload adds %d, want at least 200 and 6; %d without byte strings", some-none, perByte, without)
	}
	texts.BatchBytes, plain.BatchBytes = 8<<20, 8<<20
	_, _, more := texts.parts()
	if _, _, least := plain.parts(); more-least < 2*6*plain.MaxPayload {
		t.Errorf("the least memory grows by %d bytes, want at least %d", more-least, 2*6*plain.MaxPayload)
	}
	const records, bytes = 1000, 1 << 20
	if got, least := texts.FrameResults(records, bytes, 0, 0)-plain.FrameResults(records, bytes, 0, 0), int64(3*(100*records+3*bytes)); got < least {
		t.Errorf("byte strings of a frame take %d bytes, want at least %d", got, least)
	}
	if got, least := texts.FrameResults(records, 2*bytes, 0, 0)-texts.FrameResults(records, bytes, 0, 0), int64(3*3*bytes); got < least {
		t.Errorf("an additional MiB of records takes %d bytes, want at least %d", got, least)
	}
	texts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: records, MaxBytes: 64 << 20}
	if got, want := texts.largestFrame(bytes), texts.FrameResults(records, bytes, 0, 0); got != want {
		t.Errorf("the largest frame takes %d bytes, want %d", got, want)
	}
}
