package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/device"
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
	return framed{body: append(bytes.Join(records, []byte("\n")), '\n'), records: records}
}

// randomLines returns a frame of up to maximum records of up to 400 bytes each.
func randomLines(random *rand.Rand, maximum int) framed {
	records := make([][]byte, random.IntN(maximum+1))
	for i := range records {
		records[i] = bytes.ReplaceAll(corpus.Text(random.Uint64(), random.IntN(400)), []byte("\n"), []byte(" "))
	}
	if len(records) == 0 {
		return framed{}
	}
	return lines(records...)
}

func (r *rig) publishFrames(inputs []framed) {
	r.Helper()
	r.Publish(0, len(inputs), func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: inputs[i].body, Header: inputs[i].header}
	})
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
	for seq := range got {
		r.Errorf("there are results of an input %d that does not exist", seq)
	}
	for seq := range dead {
		r.Errorf("there are dead letters of an input %d that does not exist", seq)
	}
}

func (r *rig) deadLetters() map[uint64][]jetstream.Msg {
	return r.storedIn(r.opts.ResultStream+"_DEADLETTER", "deadletter.>")
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
			wantHeader(r.TB, h, results.HeaderPart, fmt.Sprintf("%d/%d", n+1, len(parts)))
			wantHeader(r.TB, h, results.HeaderFirstRecord, strconv.Itoa(from))
			wantHeader(r.TB, h, results.HeaderCut, parts[0].Headers().Get(results.HeaderCut))
			if h.Get(results.HeaderCut) == "" {
				r.Errorf("part %d of the result of input %d names no cut", n+1, seq)
			}
		}
		wantHeader(r.TB, h, results.HeaderRecords, strconv.Itoa(len(in.records)))
		wantHeader(r.TB, h, "Content-Type", table.ContentType(r.opts.Format, true))
		body := m.Data()
		if e := r.opts.Compress; e != compression.None && len(body) > 0 {
			wantHeader(r.TB, h, "Content-Encoding", e.ContentEncoding())
			var err error
			if body, err = new(compression.Decompressor).Append(nil, e, body, 1<<30); err != nil {
				r.Errorf("the result of input %d: %v", seq, err)
			}
		} else {
			wantHeader(r.TB, h, "Content-Encoding", "")
		}
		if err := want.Check(body, r.opts.Format, from, to); err != nil {
			r.Errorf("part %d of the result of input %d: %v", n+1, seq, err)
		}
		from = to
	}
}

func wantHeader(t testing.TB, h nats.Header, key, want string) {
	t.Helper()
	if got := h.Get(key); got != want {
		t.Errorf("%s is %q, want %q", key, got, want)
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
		wantHeader(r.TB, m.Headers(), results.HeaderReason, s.String())
		i, _ := strconv.Atoi(at)
		wantHeader(r.TB, m.Headers(), results.HeaderError, want.Message(i))
		if !bytes.Equal(m.Data(), in.records[i]) {
			r.Errorf("the dead letter of record %s of input %d has %d bytes, want its %d", at, seq, len(m.Data()), len(in.records[i]))
		}
		if !strings.HasSuffix(m.Headers().Get(jetstream.MsgIDHeader), "#"+at) {
			r.Errorf("the dead letter of record %s of input %d has the id %q", at, seq, m.Headers().Get(jetstream.MsgIDHeader))
		}
	}
	for at, s := range missing {
		r.Errorf("record %s of input %d is %v and has no dead letter", at, seq, s)
	}
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

// eachMode runs a test with shared and with exclusive delivery.
func eachMode(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, exclusive := range []bool{false, true} {
		t.Run(fmt.Sprintf("exclusive=%v", exclusive), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if exclusive {
				r.opts.Exclusive, r.opts.Partitions = true, 2
			}
			r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 65536, MaxBytes: 64 << 20}
			test(t, r)
		})
	}
}

func (r *rig) process(d device.Device, o streams.Options) {
	r.Helper()
	run := r.run(d, o)
	r.Until("every input is settled", r.allSettled)
	if err := run.drain(); err != nil {
		r.Error(err)
	}
}

// allSettled reports whether the consumers have no unsettled inputs. It ignores the temporary consumers with which
// workers read inputs again.
func (r *rig) allSettled() bool {
	stream, err := r.JS.Stream(r.Ctx(), r.opts.Stream)
	if err != nil {
		return false
	}
	settled, consumers := true, stream.ListConsumers(r.Ctx())
	for info := range consumers.Info() {
		settled = settled && (info.Config.Durable == "" || info.NumPending == 0 && info.NumAckPending == 0 && r.knowsLast(stream, info))
	}
	return settled && consumers.Err() == nil
}

// knowsLast reports whether a consumer has delivered its last input. A consumer counts a new input shortly after the
// stream stores it. Until then the consumer seems to have no inputs left.
func (r *rig) knowsLast(stream jetstream.Stream, consumer *jetstream.ConsumerInfo) bool {
	filters := consumer.Config.FilterSubjects
	if len(filters) == 0 {
		filters = []string{cmp.Or(consumer.Config.FilterSubject, ">")}
	}
	for _, filter := range filters {
		last, err := stream.GetLastMsgForSubject(r.Ctx(), filter)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil || consumer.Delivered.Stream < last.Sequence {
			return false
		}
	}
	return true
}

// TestFramesHaveOneResultEach shows that frames of any number of records have the reference results, in each format.
// One frame has many times the bytes of a batch. The model of package results covers other sizes of batches.
func TestFramesHaveOneResultEach(t *testing.T) {
	t.Parallel()
	for _, format := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Format = format
				random := rand.New(rand.NewPCG(7, 1))
				inputs := []framed{manyLines(1, 500)}
				for range 20 {
					inputs = append(inputs, randomLines(random, 40))
				}
				r.provision()
				r.publishFrames(inputs)
				r.process(hostDevice(t), streams.Options{BatchPayloads: 50, BatchBytes: 4 << 10})
				r.wantFrames(inputs)
			})
		})
	}
}

// TestCompressedFramesAreDecompressed shows that frames are decompressed according to their headers, and results are
// compressed.
func TestCompressedFramesAreDecompressed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Decompress, r.opts.Compress, r.opts.Format = compression.Auto, compression.Zstd, operator.Arrow
		r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited} // default limits
		random := rand.New(rand.NewPCG(4, 4))
		var inputs []framed
		for n := range 12 {
			in := randomLines(random, 100)
			e := []compression.Encoding{compression.None, compression.Zstd, compression.LZ4, compression.Snappy}[n%4]
			if e != compression.None {
				in.body = new(compression.Compressor).Append(nil, e, in.body)
				in.header = nats.Header{"Content-Encoding": {e.ContentEncoding()}}
			}
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		r.wantFrames(inputs)
	})
}

// TestResultsOfPlainMessagesAreCompressed shows that the result of a message without framing is compressed too.
func TestResultsOfPlainMessagesAreCompressed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing, r.opts.Compress = frame.None, compression.Zstd
		r.provision()
		const n = 20
		for i := range n {
			m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Content-Type": {"text/plain"}, "content-encoding": {"br"}}, Data: document(i)}
			if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.process(hostDevice(t), streams.Options{})
		found := r.stored("results.>")
		for i := range n {
			m := found[uint64(i+1)][0]
			wantHeader(t, m.Headers(), "Content-Type", "application/json")
			wantHeader(t, m.Headers(), "Content-Encoding", "zstd")
			wantHeader(t, m.Headers(), "content-encoding", "")
			body, err := new(compression.Decompressor).Append(nil, compression.Zstd, m.Data(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.opts.Format.Check(r.opts.Operators, document(i), body); err != nil {
				t.Errorf("the result of payload %d: %v", i, err)
			}
		}
	})
}

// TestARecordThatAnOperatorCannotTakeFailsAlone shows that bisection finds failing records in frames that span
// batches. Failing records are adjacent in two batches, the first or the last of a frame, or its only ones.
func TestARecordThatAnOperatorCannotTakeFailsAlone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		var inputs []framed
		for seed := range uint64(14) {
			in := manyLines(seed, 1+int(seed)*2)
			switch seed {
			case 3:
				in = manyLines(seed, 36, 0, 12, 13, 14, 15, 35)
			case 7:
				in = manyLines(seed, 36, 17)
			case 9:
				in = manyLines(seed, 2, 0, 1)
			}
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		r.process(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 14, BatchBytes: 128 << 10})
		r.wantFrames(inputs)
	})
}

// TestAFrameThatCannotBeReadIsADeadLetter shows that the whole message becomes a dead letter that names the byte. Its
// neighbors have results.
func TestAFrameThatCannotBeReadIsADeadLetter(t *testing.T) {
	bomb := new(compression.Compressor).Append(nil, compression.Zstd, make([]byte, 8<<20))
	cases := []struct {
		name   string
		body   []byte
		header nats.Header
		reason results.Reason
	}{
		{"a length beyond the end", []byte("\x00\x00\x00\x09abc"), nil, results.InvalidFrame},
		{"an unknown encoding", []byte("x"), nats.Header{"Content-Encoding": {"br"}}, results.InvalidEncoding},
		{"not what its header says", []byte("x"), nats.Header{"Content-Encoding": {"zstd"}}, results.InvalidEncoding},
		{"a bomb", bomb, nats.Header{"Content-Encoding": {"zstd"}}, results.TooLarge},
		{"too many records", bytes.Repeat([]byte("\x00\x00\x00\x00"), 1001), nil, results.TooLarge},
	}
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split = frame.Splitter{Framing: frame.LengthDelimited, MaxRecords: 1000, MaxBytes: 1 << 20}
		r.opts.Decompress = compression.Auto
		var inputs []framed
		for _, c := range cases {
			inputs = append(inputs, framed{body: []byte("\x00\x00\x00\x03one"), records: [][]byte{[]byte("one")}}, framed{body: c.body, header: c.header})
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
			wantHeader(t, h, results.HeaderReason, string(c.reason))
			wantHeader(t, h, results.HeaderRecord, "")
			if !bytes.Equal(dead[bad][0].Data(), c.body) {
				t.Errorf("%s: its dead letter has another body", c.name)
			}
			if !strings.Contains(h.Get(results.HeaderError), "byte") && c.name != "an unknown encoding" {
				t.Errorf("%s: the error does not tell where: %s", c.name, h.Get(results.HeaderError))
			}
		}
	})
}

// TestARecordThatLosesTheDeviceFailsAlone lets workers lose their devices one after another, until exactly the
// records to blame are given up.
func TestARecordThatLosesTheDeviceFailsAlone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.MaxDeliver = 10
		random := rand.New(rand.NewPCG(6, 6))
		var inputs []framed
		for range 6 {
			in := randomLines(random, 20)
			in.statuses = make([]record.Status, len(in.records))
			inputs = append(inputs, in)
		}
		for n, lethal := range map[int][]int{2: {5, 19}, 4: {0}} {
			records := make([][]byte, 20)
			for i := range records {
				records[i] = fmt.Appendf(nil, "record %d", i)
			}
			for _, at := range lethal {
				records[at] = bytes.Clone(marker)
			}
			in := lines(records...)
			in.statuses = make([]record.Status, len(in.records))
			for _, at := range lethal {
				in.statuses[at] = record.DeviceFault
			}
			inputs[n] = in
		}
		r.provision()
		r.publishFrames(inputs)
		losses := 0
		for settled := false; !settled; losses++ {
			if losses > 60 {
				t.Fatal("60 devices were lost")
			}
			run := r.run(poisonedSim(r), streams.Options{BatchPayloads: 32})
			until(t, "every input is settled or the device is lost", func() bool {
				settled = r.allSettled()
				return settled || len(run.done) > 0
			})
			run.stop()
			if err := run.wait(); err != nil && !errors.Is(err, device.ErrLost) {
				t.Fatal(err)
			}
		}
		t.Logf("%d devices were lost", losses-1)
		r.wantFrames(inputs)
	})
}
