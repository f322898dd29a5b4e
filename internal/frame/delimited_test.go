package frame_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/internal/frame"
)

func TestLines(t *testing.T) {
	for body, want := range map[string][]string{
		"":               {},
		"\n":             {""},
		"\n\n":           {"", ""},
		"a":              {"a"},
		"a\n":            {"a"},
		"a\nb":           {"a", "b"},
		"a\n\nb\n":       {"a", "", "b"},
		"a\r\nb\r\n":     {"a", "b"},
		"a\r\r\nb\r":     {"a\r", "b\r"},
		"\r\n":           {""},
		"\r":             {"\r"},
		"a\rb\n\r\n":     {"a\rb", ""},
		"\xff\x00\n\x00": {"\xff\x00", "\x00"},
	} {
		wantRecords(t, open(t, frame.Splitter{Framing: frame.NewlineDelimited}, []byte(body)), texts(want...), 1<<20)
	}
}

func TestLengths(t *testing.T) {
	s := frame.Splitter{Framing: frame.LengthDelimited}
	wantRecords(t, open(t, s, nil), nil, 1<<20)
	wantRecords(t, open(t, s, []byte("\x00\x00\x00\x00")), texts(""), 1<<20)
	wantRecords(t, open(t, s, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x01\n")), texts("ab", "", "\n"), 1<<20)
	for body, offset := range map[string]int64{
		"\x00":                                0,
		"\x00\x00\x00":                        0,
		"\x00\x00\x00\x01":                    0,
		"\xff\xff\xff\xffabc":                 0,
		"\x00\x00\x00\x02ab\x00\x00":          6,
		"\x00\x00\x00\x02ab\x00\x00\x00\x02c": 6,
	} {
		wantFault(t, s, []byte(body), frame.Invalid, offset)
	}
}

func TestVarints(t *testing.T) {
	s := frame.Splitter{Framing: frame.VarintLengthDelimited}
	long := strings.Repeat("x", 300)
	wantRecords(t, open(t, s, nil), nil, 1<<20)
	wantRecords(t, open(t, s, []byte("\x00")), texts(""), 1<<20)
	wantRecords(t, open(t, s, []byte("\x02ab\x00\x01\n")), texts("ab", "", "\n"), 1<<20)
	wantRecords(t, open(t, s, []byte("\xac\x02"+long+"\x81\x00y")), texts(long, "y"), 1<<20)
	for body, offset := range map[string]int64{
		"\x01":       0,
		"\x80":       0,
		"\x01a\xff":  2,
		"\x01a\x02b": 2,
		"\x01a" + strings.Repeat("\xff", 9) + "\x01":         2, // maximum uint64
		"\x01a" + strings.Repeat("\xff", 9) + "\x02":         2, // overflow
		"\x01a" + strings.Repeat("\xff", 10):                 2, // 11 bytes or more
		"\x01a" + strings.Repeat("\xff", 11) + "\x01":        2,
		"\x01a" + strings.Repeat("\x80", 9) + "\x01" + long:  2, // 2^63
		"\x01a\x01b\x01c\xac\x02" + strings.Repeat("x", 299): 6,
	} {
		wantFault(t, s, []byte(body), frame.Invalid, offset)
	}
	overflow := wantFault(t, s, []byte(strings.Repeat("\xff", 10)), frame.Invalid, 0)
	if !strings.Contains(overflow, "no varint") {
		t.Errorf("ten bytes without an end are reported as %q", overflow)
	}
}

func TestLimitsOfAFrame(t *testing.T) {
	for framing, body := range map[frame.Framing]string{
		frame.NewlineDelimited:      "aaaa\nbbbb\ncccc\n",
		frame.LengthDelimited:       "\x00\x00\x00\x01a\x00\x00\x00\x01b\x00\x00\x00\x01c",
		frame.VarintLengthDelimited: "\x04aaaa\x04bbbb\x04cccc",
	} {
		t.Run(framing.String(), func(t *testing.T) {
			exact := frame.Splitter{Framing: framing, MaxRecords: 3, MaxBytes: int64(len(body))}
			if f := open(t, exact, []byte(body)); f.Records() != 3 {
				t.Errorf("%d records, want 3", f.Records())
			}
			wantFault(t, frame.Splitter{Framing: framing, MaxRecords: 2}, []byte(body), frame.TooLarge, 10)
			wantFault(t, frame.Splitter{Framing: framing, MaxBytes: 14}, []byte(body), frame.TooLarge, 14)
		})
	}
}

func TestTheDefaultLimitsHold(t *testing.T) {
	s := frame.Splitter{Framing: frame.NewlineDelimited}
	open(t, s, []byte(strings.Repeat("\n", frame.DefaultMaxRecords)))
	wantFault(t, s, []byte(strings.Repeat("\n", frame.DefaultMaxRecords+1)), frame.TooLarge, frame.DefaultMaxRecords)
	wantFault(t, s, make([]byte, frame.DefaultMaxBytes+1), frame.TooLarge, frame.DefaultMaxBytes)
}

func TestARecordThatIsTooLargeBecomesAnEmptyRow(t *testing.T) {
	s := frame.Splitter{Framing: frame.NewlineDelimited, MaxRecord: 3}
	wantRecords(t, open(t, s, []byte("abc\nabcd\nx\nabcde\r\n\nyy")), texts("abc", "abcd", "x", "abcde", "", "yy"), 3)
}

func TestAnErrorSaysWhatToDo(t *testing.T) {
	fault := faultOf(t, frame.Splitter{Framing: frame.LengthDelimited}, []byte("\x00\x00\x00\x01a\x00\x00\x00\x09b"))
	const want = "invalid_frame at byte 5: record 1 has a length of 9 bytes, but the body has only 1 more: " +
		"send whole frames, and set MILLRACE_FRAMING to the framing that the producer uses"
	if fault.Error() != want {
		t.Errorf("the error is\n%s, want\n%s", fault, want)
	}
}

// encode builds a frame. Lines end in LF or CRLF, and the last line may lack a line end.
func encode(framing frame.Framing, random *rand.Rand, records [][]byte) []byte {
	var body []byte
	for i, r := range records {
		switch framing {
		case frame.NewlineDelimited:
			body = append(body, r...)
			if i == len(records)-1 && len(r) > 0 && random.IntN(2) == 0 {
				break
			}
			body = append(body, []string{"\n", "\r\n"}[random.IntN(2)]...)
		case frame.LengthDelimited:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(r))), r...)
		case frame.VarintLengthDelimited:
			body = append(binary.AppendUvarint(body, uint64(len(r))), r...)
		}
	}
	return body
}

// TestRandomFramesRoundTrip uses one Frame for all bodies, to detect leftovers of a previous body.
func TestRandomFramesRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var f frame.Frame
	for n := range 300 {
		framing := []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited}[n%3]
		records := someRecords(random, random.IntN(50), 1+random.IntN(300))
		maxRecord := 100 + random.IntN(300)
		s := frame.Splitter{Framing: framing, MaxRecord: maxRecord}
		if err := s.Open(&f, "", encode(framing, random, records)); err != nil {
			t.Fatal(err)
		}
		wantRecords(t, &f, records, maxRecord)
	}
}

func TestACursorSkipsAndCopiesItsPosition(t *testing.T) {
	f := open(t, frame.Splitter{Framing: frame.NewlineDelimited}, []byte("a\nb\nc\nd\ne"))
	c := f.Cursor()
	c.Skip(1)
	c.Skip(-1)
	saved := c
	b := newBatch(10, 10)
	if n := c.Fill(b, 2); n != 2 || c.Next() != 3 || saved.Next() != 1 {
		t.Fatalf("Fill(2) = %d: the position is %d, and its copy is %d; want 2, 3 and 1", n, c.Next(), saved.Next())
	}
	if n := saved.Fill(b, 100); n != 4 || !saved.Done() || c.Done() {
		t.Errorf("the copy filled %d, want 4", n)
	}
	if got := string(b.buffer[:b.bytes]); got != "bcbcde" {
		t.Errorf("the batch holds %q, want bcbcde", got)
	}
	if n := c.Fill(b, -1); n != 0 || c.Next() != 3 {
		t.Errorf("Fill(-1) = %d", n)
	}
	c.Skip(1 << 62)
	if !c.Done() || c.Next() != 5 || c.Fill(b, 1) != 0 {
		t.Errorf("after a long skip the position is %d, want 5", c.Next())
	}
}

func TestFillStopsAtARecordThatDoesNotFit(t *testing.T) {
	f := open(t, frame.Splitter{Framing: frame.NewlineDelimited}, []byte("aa\nbbbb\n\n"))
	c := f.Cursor()
	b := newBatch(3, 10)
	if n := c.Fill(b, 10); n != 1 || c.Fill(b, 10) != 0 || c.Next() != 1 {
		t.Errorf("%d records fit, and the position is %d; want 1 and 1", n, c.Next())
	}
}
