package demo

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// someFrames returns small frames with the given framing.
func someFrames(f frame.Framing) Frames { return Frames{Framing: f, RecordBytes: 30, Records: 40} }

// parts returns the correct result of message i, split into parts before the records with the given indices.
func (s *stand) parts(i int, cuts ...int) (bodies [][]byte) {
	_, records := s.demo.producer.docs.appendMessage(nil, i)
	want := table.Reference(s.demo.o.Operators, records, nil)
	from := 0
	for _, to := range append(cuts, len(records)) {
		bodies = append(bodies, want.Append(nil, s.demo.o.Format, from, to))
		from = to
	}
	return bodies
}

// publishPart publishes part n of the count parts of the result of message i.
func (s *stand) publishPart(i, n, count, first int, body []byte) {
	s.Helper()
	s.publish("results.docs.en", i, body, nats.Header{
		client.HeaderPart: {client.Part{Index: n, Count: count}.String()}, client.HeaderFirstRecord: {strconv.Itoa(first)},
	})
}

// TestFramesHoldTheirRecords splits the producer's frames as a worker does.
func TestFramesHoldTheirRecords(t *testing.T) {
	for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.Arrow} {
		source := &source{newTexts(5, someFrames(framing), 0), memory.Messages{Split: frame.Splitter{Framing: framing}}, nil}
		sizes := map[int]bool{}
		for i := range 3 {
			var f frame.Frame
			if err := (&frame.Splitter{Framing: framing}).Open(&f, "", source.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			_, want := source.appendMessage([]byte("before"), i)
			if f.Records() != 40 || len(want) != 40 {
				t.Fatalf("%v: message %d has %d records, and %d are expected, want 40", framing, i, f.Records(), len(want))
			}
			for r := range want {
				if string(f.Record(r)) != string(want[r]) {
					t.Errorf("%v: record %d of message %d is %q, want %q", framing, r, i, f.Record(r), want[r])
				}
				sizes[f.Length(r)] = true
			}
		}
		if len(sizes) < 20 {
			t.Errorf("%v: 120 records have %d different sizes", framing, len(sizes))
		}
	}
}

// TestRightResultsOfFramesAreVerified checks every format. The results are in one message, in several messages, or
// compressed.
func TestRightResultsOfFramesAreVerified(t *testing.T) {
	for _, format := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		s := newFramedStand(t, 4, someFrames(frame.LengthDelimited), format)
		s.publish("results.docs.en", 0, s.parts(0)[0], nil)
		compressed := new(compression.Compressor).Append(nil, compression.Zstd, s.parts(1)[0])
		s.publish("results.docs.en", 1, compressed, nats.Header{client.HeaderContentEncoding: {"zstd"}})
		two, three := s.parts(2, 10), s.parts(3, 1, 20)
		s.publishPart(3, 1, 3, 0, three[0])
		s.publishPart(2, 1, 2, 0, two[0])
		s.publishPart(3, 2, 3, 1, three[1])
		s.publishPart(2, 2, 2, 10, two[1])
		s.publishPart(3, 3, 3, 20, three[2])
		if err := s.run(); err != nil {
			t.Fatalf("%v: %v", format, err)
		}
		if err := s.demo.Surplus(t.Context()); err != nil || s.demo.Verified() != 4 || s.demo.Records() != 40 {
			t.Errorf("%v: %d verified of %d records each, want 4 of 40; surplus: %v", format, s.demo.Verified(), s.demo.Records(), err)
		}
	}
}

func TestWrongResultsOfFramesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		send func(s *stand) // publishes the result of message 0
	}{
		"another message's": {"records 0 to 39", func(s *stand) { s.publish("results.docs.en", 0, s.parts(1)[0], nil) }},
		"too few records":   {"327 bytes, want 1312", func(s *stand) { s.publish("results.docs.en", 0, s.parts(0, 10)[0], nil) }},
		"a part is missing": {`message 1 of 1 has the part "2/2"`, func(s *stand) { s.publishPart(0, 2, 2, 10, s.parts(0, 10)[1]) }},
		"parts out of order": {`message 1 of 3 has the part "2/3"`, func(s *stand) {
			for _, n := range []int{1, 0, 2} {
				s.publishPart(0, n+1, 3, 10*n, s.parts(0, 10, 20)[n])
			}
		}},
		"a part begins elsewhere": {"record", func(s *stand) {
			s.publishPart(0, 1, 2, 0, s.parts(0, 10)[0])
			s.publishPart(0, 2, 2, 11, s.parts(0, 10)[1])
		}},
		"a part begins after the end": {"records 0 to 39", func(s *stand) {
			s.publishPart(0, 1, 2, 0, s.parts(0, 10)[0])
			s.publishPart(0, 2, 2, 41, s.parts(0, 10)[1])
		}},
		"not compressed": {"document 0", func(s *stand) {
			s.publish("results.docs.en", 0, s.parts(0)[0], nats.Header{client.HeaderContentEncoding: {"zstd"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFramedStand(t, 1, someFrames(frame.NewlineDelimited), operator.JSON)
			c.send(s)
			if err := s.run(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run = %v, want it to say %q", err, c.want)
			}
			if s.demo.Verified() != 0 {
				t.Errorf("%d verified, want 0", s.demo.Verified())
			}
		})
	}
}

// TestFramesThatAreRefused checks that the error names the flag that is wrong.
func TestFramesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		frames Frames
		want   string // empty if the frames are accepted
	}{
		{Frames{Framing: frame.NewlineDelimited, RecordBytes: 256}, ""},
		{Frames{Framing: frame.Arrow, RecordBytes: 256, Records: 8192}, ""},
		{Frames{Framing: frame.Arrow, RecordBytes: 256, Records: 8193}, "--frame-records is 8193"},
		{Frames{Framing: frame.Arrow, RecordBytes: 1, Records: 65537}, "--frame-records is 65537"},
		{Frames{Framing: frame.Arrow, RecordBytes: 0}, "--record-bytes is 0"},
	} {
		err := c.frames.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: the error is %v, want %q", c.frames, err, c.want)
		}
	}
	if f := (Frames{Framing: frame.Arrow, RecordBytes: 256}).withDefaults(); f.Records != 2048 {
		t.Errorf("a frame has %d records of 256 bytes, want 2048: %v", f.Records, fmt.Sprint(f))
	}
}
