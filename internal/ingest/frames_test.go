package ingest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client/arrow"
	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// framed is an input of several records.
type framed struct {
	body     []byte
	header   nats.Header
	records  [][]byte
	statuses []record.Status // nil means that every record must have results
}

func lines(records ...[]byte) framed {
	if len(records) == 0 {
		return framed{}
	}
	return framed{body: append(bytes.Join(records, []byte("\n")), '\n'), records: records}
}

// manyLines returns a frame of n records of up to 200 bytes. The operators in failing fail on the records at the
// indices in bad.
func manyLines(seed uint64, n int, bad ...int) framed {
	records := make([][]byte, n)
	for i := range records {
		records[i] = bytes.ReplaceAll(corpus.Text(seed<<32+uint64(i), i*7%200), []byte("\n"), []byte(" "))
	}
	statuses := make([]record.Status, n)
	for _, i := range bad {
		records[i], statuses[i] = bytes.Repeat([]byte{'x'}, unfit), record.OperatorError
	}
	in := lines(records...)
	in.statuses = statuses
	return in
}

// compressed returns in with a compressed body and the header that names the encoding.
func (in framed) compressed(e compression.Encoding) framed {
	if e == compression.None {
		return in
	}
	in.body = new(compression.Compressor).Append(nil, e, in.body)
	h := nats.Header{"Content-Encoding": {e.ContentEncoding()}}
	maps.Copy(h, in.header)
	in.header = h
	return in
}

// as returns in with a Content-Type, for a worker that selects the framing by it.
func (in framed) as(contentType string) framed {
	in.header = nats.Header{"Content-Type": {contentType}}
	return in
}

const ndjson = "application/x-ndjson"

func (r *rig) publishFrames(inputs []framed) {
	r.Helper()
	r.Publish(0, len(inputs), func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: inputs[i].body, Header: inputs[i].header}
	})
}

// wantTable returns the expected results of an input. If the first operator is refusing, it refused the records with
// an error.
func (r *rig) wantTable(in framed) *table.Table {
	want := table.Reference(r.opts.Operators, in.records, in.statuses)
	_, refuses := r.opts.Operators[0].(refusing)
	for i := range in.records {
		if refuses && want.Status(i) == record.OperatorError {
			want.Refuse(i, 0, notFitting)
		}
	}
	return want
}

// wantFrames checks that every input has exactly one result for all its records, in one or several parts. Each failed
// record must have a dead letter.
func (r *rig) wantFrames(inputs []framed) {
	r.Helper()
	got, dead := r.stored("results.>"), r.deadLetters()
	for i, in := range inputs {
		seq := uint64(i + 1)
		r.wantFrame(seq, in, got[seq])
		r.wantRecordLetters(seq, in, dead[seq])
		delete(got, seq)
		delete(dead, seq)
	}
	if len(got)+len(dead) > 0 {
		r.Errorf("there are %d results and %d dead letters of inputs that do not exist", len(got), len(dead))
	}
}

// wantFrame checks the parts of one input's result.
func (r *rig) wantFrame(seq uint64, in framed, parts []jetstream.Msg) {
	r.Helper()
	want := r.wantTable(in)
	if len(parts) == 0 {
		r.Errorf("input %d of %d records has no result", seq, len(in.records))
		return
	}
	from := 0
	for n, m := range parts {
		h := m.Headers()
		to := len(in.records)
		if len(parts) > 1 {
			if n+1 < len(parts) {
				to, _ = strconv.Atoi(parts[n+1].Headers().Get(results.HeaderFirstRecord))
			}
			wantHeaders(r.TB, h, map[string]string{
				results.HeaderPart: fmt.Sprintf("%d/%d", n+1, len(parts)), results.HeaderFirstRecord: strconv.Itoa(from),
				results.HeaderCut: parts[0].Headers().Get(results.HeaderCut),
			})
			if h.Get(results.HeaderCut) == "" {
				r.Errorf("part %d of the result of input %d names no cut", n+1, seq)
			}
		}
		body, encoding := m.Data(), ""
		if e := r.opts.Compress; e != compression.None && len(body) > 0 {
			encoding = e.ContentEncoding()
			var err error
			if body, err = new(compression.Decompressor).Append(nil, e, body, 1<<30); err != nil {
				r.Errorf("the result of input %d: %v", seq, err)
			}
		}
		wantHeaders(r.TB, h, map[string]string{
			results.HeaderRecords: strconv.Itoa(len(in.records)), "Content-Encoding": encoding,
			"Content-Type": table.ContentType(r.opts.Format, true),
		})
		if err := want.Check(body, r.opts.Format, from, to); err != nil {
			r.Errorf("part %d of the result of input %d: %v", n+1, seq, err)
		}
		from = to
	}
}

// wantRecordLetters checks that each failed record has one dead letter, and no other record has any.
func (r *rig) wantRecordLetters(seq uint64, in framed, dead []jetstream.Msg) {
	r.Helper()
	want := r.wantTable(in)
	missing := map[string]record.Status{}
	for i, s := range in.statuses {
		if s.Failed() {
			missing[strconv.Itoa(i)] = s
		}
	}
	for _, m := range dead {
		at := m.Headers().Get(results.HeaderRecord)
		s, ok := missing[at]
		if !ok {
			r.Errorf("input %d has a dead letter for record %q: %v", seq, at, m.Headers())
			continue
		}
		delete(missing, at)
		i, _ := strconv.Atoi(at)
		wantHeaders(r.TB, m.Headers(), map[string]string{results.HeaderReason: s.String(), results.HeaderError: want.Message(i)})
		if got := r.recordIn(m); !bytes.Equal(got, in.records[i]) {
			r.Errorf("the dead letter of record %s of input %d has %d bytes, want its %d", at, seq, len(got), len(in.records[i]))
		}
		if !strings.HasSuffix(m.Headers().Get(jetstream.MsgIDHeader), "#"+at) {
			r.Errorf("the dead letter of record %s of input %d has the id %q", at, seq, m.Headers().Get(jetstream.MsgIDHeader))
		}
	}
	for at, s := range missing {
		r.Errorf("record %s of input %d is %v and has no dead letter", at, seq, s)
	}
}

// recordIn returns the record in a record's dead letter. The dead letter of an Arrow row is a stream of one row.
func (r *rig) recordIn(m jetstream.Msg) []byte {
	r.Helper()
	if m.Headers().Get("Content-Type") != frame.ContentTypeOf(frame.Arrow) {
		return m.Data()
	}
	var f frame.Frame
	check(r.TB, (&frame.Splitter{Framing: frame.Arrow}).Open(&f, "", m.Data()))
	if f.Records() != 1 {
		r.Errorf("the dead letter of a row has %d rows", f.Records())
	}
	return f.Record(0)
}

// wantReported checks that the observer received the dead letter of each failed record once.
func (r *rig) wantReported(inputs []framed) {
	r.Helper()
	want := map[string]int{}
	for n, in := range inputs {
		for i, s := range in.statuses {
			if s.Failed() {
				want[fmt.Sprint(n+1, i, " ", s)] = 1
			}
		}
	}
	if len(want) == 0 || !maps.Equal(r.tally.letters, want) {
		r.Errorf("the dead letters %v are reported, want %v", r.tally.letters, want)
	}
}

// TestFramesHaveOneResultEach shows that frames of any number of records have the reference results, in each format.
// One frame has many times the bytes of a batch. Frames are decompressed according to their headers, and results are
// compressed. The model of package results covers other sizes of batches.
func TestFramesHaveOneResultEach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format   operator.Format
		compress compression.Encoding
	}{{operator.JSON, compression.None}, {operator.Binary, compression.None}, {operator.Arrow, compression.None},
		{operator.Arrow, compression.Zstd}} {
		t.Run(fmt.Sprint(c.format, ", ", c.compress), func(t *testing.T) {
			eachModeOfFrames(t, func(t *testing.T, r *rig) {
				r.opts.Format, r.opts.Compress = c.format, c.compress
				encodings := []compression.Encoding{compression.None}
				if c.compress != compression.None {
					r.opts.Decompress, r.opts.Split = compression.Auto, frame.Splitter{Framing: frame.NewlineDelimited} // default limits
					encodings = append(encodings, compression.Zstd, compression.LZ4, compression.Snappy)
				}
				random := rand.New(rand.NewPCG(7, 1))
				inputs := []framed{manyLines(1, 500)}
				for n := range 20 {
					inputs = append(inputs, manyLines(random.Uint64(), random.IntN(41)).compressed(encodings[n%len(encodings)]))
				}
				r.provision()
				r.publishFrames(inputs)
				r.process(hostDevice(t), streams.Options{BatchPayloads: 50, BatchBytes: 4 << 10})
				r.wantFrames(inputs)
			})
		})
	}
}

// TestResultsOfPlainMessagesAreCompressed shows that the result of a message without framing is compressed too.
func TestResultsOfPlainMessagesAreCompressed(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.Compress = compression.Zstd
		r.provision()
		const n = 20
		r.Publish(0, n, func(i int) *nats.Msg {
			h := nats.Header{"Content-Type": {"text/plain"}, "content-encoding": {"br"}}
			return &nats.Msg{Subject: "ingest.web.0", Header: h, Data: document(i)}
		})
		r.process(hostDevice(t), streams.Options{})
		found := r.stored("results.>")
		for i := range n {
			m := found[uint64(i+1)][0]
			wantHeaders(t, m.Headers(), map[string]string{"Content-Type": "application/json", "Content-Encoding": "zstd", "content-encoding": ""})
			body, err := new(compression.Decompressor).Append(nil, compression.Zstd, m.Data(), 1<<20)
			check(r.TB, err)
			if err := r.opts.Format.Check(r.opts.Operators, document(i), body); err != nil {
				t.Errorf("the result of payload %d: %v", i, err)
			}
		}
	})
}

// TestARecordThatFailsFailsAlone shows that all other records of its frame have results, even in other batches.
// Failing records are adjacent in two batches, the first or the last of a frame, or its only ones. Several failed
// records of one message are the same evidence against the device as one, so a frame of them doesn't end the worker.
func TestARecordThatFailsFailsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range failing {
		for _, batch := range []int{1, 7, 1024} {
			t.Run(fmt.Sprintf("records %s, in batches of %d", name, batch), func(t *testing.T) {
				eachModeOfFrames(t, func(t *testing.T, r *rig) {
					d := c.open(r, t)
					inputs := []framed{manyLines(0, 20), manyLines(1, 36, 0, 12, 13, 14, 15, 35), manyLines(2, 1, 0), manyLines(3, 2, 0, 1)}
					for seed := range uint64(9) { // without good records the worker would end
						inputs = append(inputs, manyLines(10+seed, 1+2*int(seed)))
					}
					r.provision()
					r.publishFrames(inputs)
					r.process(d, streams.Options{BatchPayloads: batch, BatchBytes: 128 << 10})
					r.wantFrames(inputs)
					r.wantReported(inputs)
				})
			})
		}
	}
}

// TestAFrameThatFailsAltogetherDoesNotEndTheWorker publishes no good record.
func TestAFrameThatFailsAltogetherDoesNotEndTheWorker(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 3, 0, 1, 2)}
		r.provision()
		r.publishFrames(inputs)
		r.process(openHost(t, pickyKernels()), streams.Options{})
		r.wantFrames(inputs)
		r.wantReported(inputs)
	})
}

// TestARecordThatIsNotComputedIsNotRefused uses an operator that refuses empty records. The operator gets an empty
// record in place of a null and of a record that exceeds a batch.
func TestARecordThatIsNotComputedIsNotRefused(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing = frame.Auto
		kernels := r.refuseAlso(0)
		large := lines([]byte("fits"), bytes.Repeat([]byte("x"), 20<<10), []byte{}, []byte("fits too")).as(ndjson)
		large.statuses = []record.Status{record.OK, record.TooLarge, record.OperatorError, record.OK}
		f := arrow.NewFrame("record")
		f.AppendNull()
		for _, text := range []string{"a", ""} {
			check(r.TB, f.Append([]byte(text)))
		}
		body, err := f.Encode(nil)
		check(r.TB, err)
		nulls := framed{body: body, records: [][]byte{nil, []byte("a"), {}}}
		nulls.statuses = []record.Status{record.Null, record.OK, record.OperatorError}
		inputs := []framed{large, nulls.as("application/vnd.apache.arrow.stream")}
		r.provision()
		r.publishFrames(inputs)
		r.process(openHost(t, kernels), streams.Options{BatchBytes: 16 << 10})
		r.wantFrames(inputs)
	})
}

// TestAFrameThatCannotBeReadIsADeadLetter shows that the whole message becomes a dead letter that names the byte. Its
// neighbors have results.
func TestAFrameThatCannotBeReadIsADeadLetter(t *testing.T) {
	bomb := framed{body: make([]byte, 8<<20)}.compressed(compression.Zstd)
	zstd := nats.Header{"Content-Encoding": {"zstd"}}
	cases := []struct {
		name   string
		in     framed
		reason results.Reason
	}{
		{"a length beyond the end", framed{body: []byte("\x00\x00\x00\x09abc")}, results.InvalidFrame},
		{"an unknown encoding", framed{body: []byte("x"), header: nats.Header{"Content-Encoding": {"br"}}}, results.InvalidEncoding},
		{"not what its header says", framed{body: []byte("x"), header: zstd}, results.InvalidEncoding},
		{"a bomb", bomb, results.TooLarge},
		{"too many records", framed{body: bytes.Repeat([]byte("\x00\x00\x00\x00"), 1001)}, results.TooLarge},
	}
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.Split = frame.Splitter{Framing: frame.LengthDelimited, MaxRecords: 1000, MaxBytes: 1 << 20}
		r.opts.Decompress = compression.Auto
		var inputs []framed
		for _, c := range cases {
			inputs = append(inputs, framed{body: []byte("\x00\x00\x00\x03one"), records: [][]byte{[]byte("one")}}, c.in)
		}
		r.provision()
		r.publishFrames(inputs)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 3})
		got, dead := r.stored("results.>"), r.deadLetters()
		for i, c := range cases {
			good, bad := uint64(2*i+1), uint64(2*i+2)
			r.wantFrame(good, inputs[2*i], got[good])
			if len(got[bad]) > 0 || len(dead[bad]) != 1 || len(dead[good]) > 0 {
				t.Errorf("%s: %d results and %d dead letters, want 0 and 1", c.name, len(got[bad]), len(dead[bad]))
				continue
			}
			h := dead[bad][0].Headers()
			wantHeaders(t, h, map[string]string{results.HeaderReason: string(c.reason), results.HeaderRecord: ""})
			if !bytes.Equal(dead[bad][0].Data(), c.in.body) {
				t.Errorf("%s: its dead letter has another body", c.name)
			}
			if !strings.Contains(h.Get(results.HeaderError), "byte") && c.name != "an unknown encoding" {
				t.Errorf("%s: the error does not tell where: %s", c.name, h.Get(results.HeaderError))
			}
		}
	})
}

// TestARefusedCompressedPayloadIsADeadLetter covers the separate code for a compressed message without framing.
func TestARefusedCompressedPayloadIsADeadLetter(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.Decompress = compression.Auto
		d := r.refuse(t)
		r.provision()
		r.publishFrames([]framed{framed{body: unfitAt(0)(0)}.compressed(compression.Zstd)})
		r.process(d, streams.Options{})
		wantHeaders(t, r.deadLetter(1).Headers(), map[string]string{
			results.HeaderReason: string(results.OperatorError), results.HeaderOperator: "crc32c",
			results.HeaderError: "operator crc32c: " + notFitting,
		})
		if found := r.stored("results.>"); len(found) != 0 {
			t.Errorf("%d results, want none", len(found))
		}
	})
}
