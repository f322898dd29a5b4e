package frame_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"millrace/internal/frame"
)

type message struct {
	framing frame.Framing
	body    []byte
	fields  bool // whether the splitter has a field and a kept field
}

// outcome opens a message with f and describes the visible outcome: the error, or each record with its status.
func (m message) outcome(f *frame.Frame) string {
	s := frame.Splitter{Framing: m.framing, MaxRecords: 50, MaxBytes: 1 << 14, MaxRecord: 1000}
	if m.fields {
		s.Field, s.Keep, s.Annotate = "text", []string{"id"}, "id"
	}
	if err := s.Open(f, "", m.body); err != nil {
		return err.Error()
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%d %d %v %d %d\n", f.Records(), f.Bytes(), f.Framed(), f.Copied(), f.Statuses())
	for i := range f.Records() {
		fmt.Fprintf(&text, "%v %q %q\n", f.Status(i), f.Record(i), f.Source(i))
		if m.fields {
			fmt.Fprintf(&text, "%q %q %t\n", f.Kept(i, 0), f.Fault(i), f.IsAnnotated(i))
		}
	}
	into := newBatch(1<<15, 100)
	for cursor := f.Cursor(); !cursor.Done() && cursor.Fill(into, 1<<15) > 0; {
	}
	fmt.Fprintf(&text, "%q\n", into.rows())
	return text.String()
}

// validMessages returns messages of all framings, types and codecs. Their texts and sizes differ between producers.
func validMessages(t testing.TB) (all []message) {
	random := rand.New(rand.NewPCG(5, 6))
	for producer := range 4 {
		records := make([][]byte, 1+random.IntN(20))
		for i := range records {
			records[i] = bytes.Repeat([]byte{byte('a' + producer)}, random.IntN(60))
		}
		for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited} {
			all = append(all, message{framing, encode(framing, random, records), false})
		}
		all = append(all, message{frame.None, records[0], false})
		for _, typ := range binaryTypes {
			for _, options := range compressions {
				body := textStream(t, typ, [][][]byte{records, texts("<null>", "x")}, options...)
				all = append(all, message{frame.Arrow, body, false}, message{frame.Arrow, dependent(body), true})
			}
		}
		all = append(all, message{frame.Arrow, dictionaryStream(t), false})
		var texts []string
		for i, r := range records {
			texts = append(texts, fmt.Sprintf(`{"id":%d,"text":"%s\n"}`, i, r))
		}
		for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.JSONArray} {
			body := frameOf(framing, texts)
			all = append(all, message{framing, body, true}, message{framing, body, false})
		}
		all = append(all, message{frame.None, []byte(texts[0]), true})
	}
	return all
}

// dependent marks the blocks of all LZ4 frames in a body as dependent, as other writers do. Each frame has a single
// block, so it remains valid.
func dependent(body []byte) []byte {
	body = bytes.Clone(body)
	const independent = 1 << 5
	for rest := body; ; {
		at := bytes.Index(rest, []byte("\x04\x22\x4d\x18"))
		if at < 0 {
			return body
		}
		rest = rest[at+4:]
		if sum, ok := headerChecksums[[2]byte{rest[0] &^ independent, rest[1]}]; ok {
			rest[0], rest[2] = rest[0]&^independent, sum
		}
	}
}

// headerChecksums maps flags and block size to the checksum of the header that dependent writes.
var headerChecksums = map[[2]byte]byte{{0x40, 0x40}: 0xc0, {0x40, 0x70}: 0xdf, {0x44, 0x40}: 0x5e, {0x44, 0x70}: 0x1d}

// changed returns a message with a random fault: a changed byte, a truncation, or bytes of another message.
func changed(random *rand.Rand, m, other message) message {
	body := bytes.Clone(m.body)
	if len(body) == 0 {
		return m
	}
	switch at := random.IntN(len(body)); random.IntN(4) {
	case 0:
		body = body[:at]
	case 1:
		copy(body[at:], other.body)
	default:
		body[at] ^= 1 << random.IntN(8)
	}
	return message{m.framing, body, m.fields}
}

// TestAReusedFrameIsLikeANewOne opens valid and damaged messages of several producers in random order. With a reused or a new
// frame, a message must not expose bytes of another message.
func TestAReusedFrameIsLikeANewOne(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	all := validMessages(t)
	for _, m := range all[:len(all):len(all)] {
		for range 12 {
			all = append(all, changed(random, m, all[random.IntN(len(all))]))
		}
	}
	for _, m := range validMessages(t) {
		s := frame.Splitter{Framing: m.framing}
		if m.fields {
			s.Annotate = "id"
		}
		open(t, s, m.body)
	}
	first := make([]string, len(all))
	var reused frame.Frame
	for n := range 4 * len(all) {
		i := random.IntN(len(all))
		got, fresh := all[i].outcome(&reused), all[i].outcome(new(frame.Frame))
		if first[i] == "" {
			first[i] = fresh
		}
		if got != fresh || got != first[i] {
			t.Fatalf("step %d: message %d (%v, %q) gives\n%s\nwith a reused frame,\n%s\nwith a new frame, and gave\n%s\nat first", n, i, all[i].framing, all[i].body, got, fresh, first[i])
		}
	}
}

// FuzzReused opens two bodies in sequence with one frame.
func FuzzReused(f *testing.F) {
	for i, m := range validMessages(f) {
		if i%5 == 0 {
			f.Add(uint8(m.framing), m.body, uint8(frame.Arrow), textStream(f, arrow.BinaryTypes.String, [][][]byte{texts("abc")}, compressions["lz4"]...))
		}
	}
	f.Fuzz(func(t *testing.T, framing uint8, body []byte, otherFraming uint8, other []byte) {
		const framings = uint8(frame.JSONArray) + 1
		m, before := message{frame.Framing(framing % framings), body, framing%2 == 0}, message{frame.Framing(otherFraming % framings), other, otherFraming%4 < 2}
		var reused frame.Frame
		before.outcome(&reused)
		if got, want := m.outcome(&reused), m.outcome(new(frame.Frame)); got != want {
			t.Fatalf("%q after %q gives\n%s, alone\n%s", body, other, got, want)
		}
	})
}
