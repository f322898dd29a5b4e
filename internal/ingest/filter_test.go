package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/compression"
	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/ingest/natstest"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// verdict is the expected outcome of a record.
type verdict uint8

const (
	kept verdict = iota
	leftOut
	fails
)

// filteredRecord returns a record with an outcome. The filter is record.bytes > 5 && 100 / (record.bytes - 10) < 50.
func filteredRecord(v verdict, i int) []byte {
	length := map[verdict]int{kept: 20 + i%200, leftOut: 5, fails: 10}[v]
	return bytes.Repeat([]byte{'a' + byte(i%26)}, length)
}

// TestFilter shows that each record of each message has one outcome: it is in the result with its number and its value, it is counted as
// left out, or it has a dead letter.
func TestFilter(t *testing.T) {
	t.Parallel()
	for name, encode := range map[string]struct {
		format   operator.Format
		compress compression.Encoding
		framing  frame.Framing
	}{
		"lines to JSON":      {operator.JSON, compression.None, frame.NewlineDelimited},
		"lengths to zstd":    {operator.JSON, compression.Zstd, frame.LengthDelimited},
		"lines to Arrow":     {operator.Arrow, compression.None, frame.NewlineDelimited},
		"lines to binary":    {operator.Binary, compression.None, frame.NewlineDelimited},
		"messages to JSON":   {operator.JSON, compression.None, frame.None},
		"messages to binary": {operator.Binary, compression.LZ4, frame.None},
		"messages to Arrow":  {operator.Arrow, compression.Zstd, frame.None},
	} {
		t.Run(name, func(t *testing.T) {
			eachModeOfFrames(t, func(t *testing.T, r *rig) {
				r.operators("crc32c")
				r.opts.Format, r.opts.Compress, r.opts.Split.Framing = encode.format, encode.compress, encode.framing
				r.opts.Filter = natstest.Must(filter.New("record.bytes > 5 && 100 / (record.bytes - 10) < 50", r.opts.Operators, nil))(t)
				r.provision()
				if encode.format == operator.JSON {
					r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 3000 }) // results have parts
				}
				inputs := filteredInputs(encode.framing)
				r.Publish(0, len(inputs), func(i int) *nats.Msg {
					return &nats.Msg{Subject: "ingest.web", Data: r.joined(filteredBodies(inputs[i]))}
				})
				r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
				r.wantFiltered(inputs)
			})
		})
	}
}

// filteredInputs returns the outcomes of the records of some messages.
func filteredInputs(framing frame.Framing) (inputs [][]verdict) {
	if framing == frame.None {
		for i := range 100 {
			inputs = append(inputs, []verdict{verdict(i % 3)})
		}
		return inputs
	}
	inputs = [][]verdict{{kept, kept, kept}, {leftOut, leftOut}, {}, {fails}, {kept, leftOut, fails, kept, leftOut}}
	long := make([]verdict, 500)
	for i := range long {
		long[i] = verdict(i * i % 3)
	}
	return append(inputs, long, make([]verdict, 300))
}

func filteredBodies(in []verdict) [][]byte {
	records := make([][]byte, len(in))
	for i, v := range in {
		records[i] = filteredRecord(v, i)
	}
	return records
}

// joined returns a message with records.
func (r *rig) joined(records [][]byte) (body []byte) {
	for _, record := range records {
		switch r.opts.Split.Framing {
		case frame.NewlineDelimited:
			body = append(append(body, record...), '\n')
		case frame.LengthDelimited:
			body = append(append(body, 0, 0, 0, byte(len(record))), record...)
		default:
			body = append(body, record...)
		}
	}
	return body
}

// wantFiltered checks the outcome of each record.
func (r *rig) wantFiltered(inputs [][]verdict) {
	r.Helper()
	got, dead := r.stored("results.>"), r.deadLetters()
	framed := r.opts.Split.Framing != frame.None
	for i, in := range inputs {
		seq := uint64(i + 1)
		if !framed && in[0] == fails {
			if len(got[seq]) > 0 || len(dead[seq]) != 1 || dead[seq][0].Headers().Get(client.HeaderReason) != "filter_error" {
				r.Errorf("message %d has %d results and %d dead letters, want a dead letter", seq, len(got[seq]), len(dead[seq]))
			}
			continue
		}
		count := [3]int{}
		for _, v := range in {
			count[v]++
		}
		if len(got[seq]) == 0 || len(dead[seq]) != count[fails] {
			r.Errorf("message %d has %d results and %d dead letters, want %d dead letters", seq, len(got[seq]), len(dead[seq]), count[fails])
			continue
		}
		for _, letter := range dead[seq] {
			n, _ := strconv.Atoi(letter.Headers().Get(client.HeaderRecord))
			if h := letter.Headers(); in[n] != fails || h.Get(client.HeaderReason) != "filter_error" || !bytes.Equal(letter.Data(), filteredRecord(fails, n)) {
				r.Errorf("record %d of message %d has the dead letter %v", n, seq, h)
			}
		}
		r.wantKept(seq, in, count, got[seq])
	}
}

// wantKept checks that the parts of a result have the kept records of a message, with their numbers and checksums, and that a client's
// Collector accepts them.
func (r *rig) wantKept(seq uint64, in []verdict, count [3]int, parts []jetstream.Msg) {
	r.Helper()
	var collector client.Collector[jetstream.Msg]
	for n, m := range parts {
		result, err := collector.Add(m.Headers(), m)
		if last := n+1 == len(parts); err != nil || last != (len(result) == len(parts)) {
			r.Errorf("part %d of message %d completes a result of %d parts, %v, want %d parts", n+1, seq, len(result), err, len(parts))
		}
	}
	next := 0
	for n, m := range parts {
		h := m.Headers()
		if h.Get(client.HeaderRecords) != strconv.Itoa(count[kept]) || h.Get(client.HeaderFiltered) != strconv.Itoa(count[leftOut]) {
			r.Errorf("message %d has %s records and %s left out, want %v", seq, h.Get(client.HeaderRecords), h.Get(client.HeaderFiltered), count)
		}
		for number, sum := range r.checksums(m) {
			for next < len(in) && in[next] != kept {
				next++
			}
			want := operator.JSON.Append(nil, r.opts.Operators, 0, [][]byte{r.opts.Operators[0].AppendReference(nil, filteredRecord(kept, next))})
			if number != next || !bytes.Contains(want, fmt.Appendf(nil, "%q", sum)) {
				r.Errorf("message %d, part %d: record %d has the checksum %s, want record %d in %s", seq, n, number, sum, next, want)
				return
			}
			next++
		}
	}
	for ; next < len(in); next++ {
		if in[next] == kept {
			r.Errorf("message %d: record %d isn't in the result", seq, next)
		}
	}
}

// checksums iterates over the numbers and checksums of the records in a result.
func (r *rig) checksums(m jetstream.Msg) func(yield func(int, string) bool) {
	r.Helper()
	encoding := natstest.Must(compression.FromHeader(m.Headers().Get("Content-Encoding")))(r)
	body := m.Data()
	if encoding != compression.None {
		body = natstest.Must(new(compression.Decompressor).Append(nil, encoding, body, 1<<30))(r)
	}
	return func(yield func(int, string) bool) {
		switch r.opts.Format {
		case operator.Arrow:
			result := natstest.Must(arrow.Decode(body))(r)
			for i := range result.Len() {
				if !yield(int(result.Numbers[i]), fmt.Sprintf("%08x", result.Column("crc32c").Value(i)[0])) {
					return
				}
			}
			return
		case operator.Binary:
			result := natstest.Must(client.Decode(body))(r)
			for number, record := range result.Records() {
				sum, _ := record.Uint32(0)
				if !yield(number, fmt.Sprintf("%08x", sum)) {
					return
				}
			}
			return
		}
		for line := range bytes.Lines(body) {
			var result struct {
				Record int
				CRC32C string
			}
			natstest.OK(r, json.Unmarshal(line, &result))
			if !yield(result.Record, result.CRC32C) {
				return
			}
		}
	}
}
