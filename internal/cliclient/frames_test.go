package cliclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
)

// packed returns the payloads that a framer packs from payloads.
func packed(t *testing.T, f *Framer, payloads ...Payload) (all []Payload) {
	t.Helper()
	for p := range f.Pack(slices.Values(payloads)) {
		all = append(all, p)
	}
	return all
}

func numbered(n int) (all []Payload) {
	for i := range n {
		all = append(all, Payload{Place: fmt.Sprint("file:", i+1), Data: fmt.Append(nil, "record ", i)})
	}
	return all
}

// recordsOf splits a message as a worker does, based on the headers.
func recordsOf(t *testing.T, f *Framer, message []byte) (records []string) {
	t.Helper()
	h := nats.Header{}
	f.Describe(h)
	encoding, err := compression.FromHeader(h.Get("Content-Encoding"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := new(compression.Decompressor).Append(nil, encoding, message, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	split := frame.Splitter{Framing: frame.Auto, MaxRecord: 1 << 10}
	var opened frame.Frame
	if err := split.Open(&opened, h.Get("Content-Type"), body); err != nil {
		t.Fatal(err)
	}
	for i := range opened.Records() {
		records = append(records, string(opened.Record(i)))
	}
	return records
}

func TestFramesOfPayloads(t *testing.T) {
	t.Parallel()
	for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.Arrow} {
		for _, encoding := range []compression.Encoding{compression.None, compression.Zstd, compression.LZ4, compression.Snappy} {
			f := &Framer{Framing: framing, Encoding: encoding, Records: 4, Max: 1 << 20}
			var got []string
			counts, places := []int{}, []string{}
			for _, message := range packed(t, f, numbered(10)...) {
				if message.Err != nil {
					t.Fatal(message.Err)
				}
				counts, places = append(counts, message.Records), append(places, message.Place)
				got = append(got, recordsOf(t, f, message.Data)...)
			}
			var want []string
			for _, p := range numbered(10) {
				want = append(want, string(p.Data))
			}
			if !slices.Equal(got, want) || !slices.Equal(counts, []int{4, 4, 2}) || !slices.Equal(places, []string{"file:1", "file:5", "file:9"}) {
				t.Errorf("%v, %v: records %q in frames of %v from %q", framing, encoding, got, counts, places)
			}
		}
	}
}

func TestFramesFitInAMessage(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	payloads := make([]Payload, 100)
	for i := range payloads {
		payloads[i].Data = make([]byte, 1000*(i%9))
	}
	records := 0
	for _, message := range packed(t, &Framer{Framing: frame.LengthDelimited, Records: 1000, Max: limit}, payloads...) {
		if len(message.Data) > limit-frameMargin {
			t.Errorf("a frame has %d bytes, and %d are the most", len(message.Data), limit)
		}
		records += message.Records
	}
	if records != len(payloads) {
		t.Errorf("%d records, want %d", records, len(payloads))
	}
}

// TestPayloadsThatAreNotPacked shows that a payload with an error isn't packed. Without a framing, no payload is.
func TestPayloadsThatAreNotPacked(t *testing.T) {
	t.Parallel()
	bad := Payload{Place: "file:2", Err: errors.New("too large")}
	got := packed(t, &Framer{Framing: frame.NewlineDelimited, Records: 10, Max: 1 << 20}, numbered(1)[0], bad, numbered(1)[0])
	if len(got) != 3 || got[0].Records != 1 || got[1].Err == nil || got[2].Records != 1 {
		t.Errorf("%+v", got)
	}
	f := &Framer{Max: 1 << 20}
	h := nats.Header{}
	f.Describe(h)
	if got := packed(t, f, numbered(2)...); len(got) != 2 || string(got[1].Data) != "record 1" || got[1].Records != 0 || len(h) > 0 {
		t.Errorf("%+v with %v", got, h)
	}
}

func TestHeadersThatAreThereStay(t *testing.T) {
	t.Parallel()
	h := nats.Header{"content-type": {"text/plain"}}
	(&Framer{Framing: frame.NewlineDelimited, Encoding: compression.Zstd}).Describe(h)
	if len(h) != 2 || h["content-type"][0] != "text/plain" || h.Get("Content-Encoding") != "zstd" {
		t.Error(h)
	}
}

// TestSendKeepsItsRate uses a rate at which the second message is due days after the first.
func TestSendKeepsItsRate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := &Sender{Conn: r.NC, Stream: "IN", Subject: "in.web", Rate: 1e-6}
	ctx, cancel := context.WithCancel(r.Ctx())
	go func() {
		r.Until("a message is stored", func() bool { n, _ := s.Stored(); return n == 1 })
		cancel()
	}()
	if report, err := s.Send(ctx, payloads(2)); err != nil || report.Stored != 1 || !errors.Is(report.Err, context.Canceled) {
		t.Errorf("%+v, %v", report, err)
	}
}
