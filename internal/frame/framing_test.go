package frame_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"

	"millrace/internal/frame"
)

func TestFramingNamesRoundTrip(t *testing.T) {
	var f frame.Framing
	for _, name := range []string{"none", "newline_delimited", "length_delimited", "varint_length_delimited", "arrow", "auto"} {
		if err := f.UnmarshalText([]byte(name)); err != nil || f.String() != name {
			t.Errorf("%q is parsed as %v, %v", name, f, err)
		}
	}
	for _, name := range []string{"", "ndjson", "Arrow", "none "} {
		if err := f.UnmarshalText([]byte(name)); err == nil {
			t.Errorf("%q is parsed as %v, want an error", name, f)
		}
	}
}

func TestTheContentTypeSelectsTheFraming(t *testing.T) {
	for contentType, want := range map[string]frame.Framing{
		"":                                    frame.None,
		"text/plain":                          frame.None,
		"application/json":                    frame.None,
		"application/x-ndjson":                frame.NewlineDelimited,
		"Application/X-NDJSON; charset=utf-8": frame.NewlineDelimited,
		" application/jsonl ;q=1":             frame.NewlineDelimited,
		"application/vnd.apache.arrow.stream": frame.Arrow,
		"application/vnd.apache.arrow.file":   frame.None,
		"application/x-ndjson-else":           frame.None,
	} {
		if got := frame.FramingOf(contentType); got != want {
			t.Errorf("FramingOf(%q) = %v, want %v", contentType, got, want)
		}
	}
}

func TestAutoSplitsOnlyWhatTheContentTypeNames(t *testing.T) {
	var f frame.Frame
	auto := frame.Splitter{Framing: frame.Auto}
	for contentType, records := range map[string]int{"application/x-ndjson": 2, "text/plain": 1, "": 1} {
		if err := auto.Open(&f, contentType, []byte("a\nb\n")); err != nil {
			t.Fatal(err)
		}
		if f.Records() != records || f.Framed() != (records == 2) {
			t.Errorf("%q gives %d records, framed %v; want %d", contentType, f.Records(), f.Framed(), records)
		}
	}
	lines := frame.Splitter{Framing: frame.NewlineDelimited}
	if err := lines.Open(&f, "text/plain", []byte("a\nb\n")); err != nil || f.Records() != 2 {
		t.Errorf("a fixed framing gives %d records for another content type, want 2 (%v)", f.Records(), err)
	}
}

func TestABodyWithoutFramingIsOneRecord(t *testing.T) {
	for _, body := range []string{"", "a\nb\n", "\x00\x00\x00\x01x"} {
		f := open(t, frame.Splitter{MaxBytes: 1, MaxRecords: 1}, []byte(body))
		if f.Framed() {
			t.Error("a body without framing is framed")
		}
		wantRecords(t, f, texts(body), 1<<20)
	}
	wantRecords(t, open(t, frame.Splitter{MaxRecord: 3}, []byte("four")), texts("four"), 3)
}

// TestResetLetsGoOfTheBody: a frame on a free list must not retain the body of its last message.
func TestResetLetsGoOfTheBody(t *testing.T) {
	var f frame.Frame
	bodies := func() (pointers []weak.Pointer[byte]) {
		for i, framing := range []frame.Framing{frame.Arrow, frame.NewlineDelimited, frame.Arrow} {
			body := make([]byte, 1<<16)
			if framing == frame.Arrow {
				body = dictionaryStream(t)
			}
			if i == 2 {
				body = textStream(t, arrow.BinaryTypes.String, [][][]byte{texts("a"), texts("b")})
			}
			if err := (&frame.Splitter{Framing: framing}).Open(&f, "", body); err != nil {
				t.Fatal(err)
			}
			pointers = append(pointers, weak.Make(&body[0]))
		}
		return pointers
	}()
	f.Reset()
	runtime.GC()
	for i, p := range bodies {
		if p.Value() != nil {
			t.Errorf("body %d is still in memory", i)
		}
	}
	if f.Records() != 0 {
		t.Error("the frame still has records")
	}
}
