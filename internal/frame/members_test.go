package frame_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/frame"
	"millrace/internal/record"
)

var jsonLines = frame.Splitter{Framing: frame.NewlineDelimited, Field: "text", Keep: []string{"id", "meta.lang"}}

// want is the expected state of a record.
type want struct {
	status record.Status
	length int
	value  string // empty unless the status is OK
	source string
	kept   []string // empty strings are absent
}

// wantSelected checks all records of a frame, and the rows that batches get.
func wantSelected(t *testing.T, f *frame.Frame, all []want) {
	t.Helper()
	if f.Records() != len(all) {
		t.Fatalf("%d records, want %d", f.Records(), len(all))
	}
	rows, total := make([][]byte, len(all)), 0
	for i, w := range all {
		if f.Status(i) != w.status || f.Length(i) != w.length || string(f.Source(i)) != w.source {
			t.Errorf("record %d is %v, %d bytes, from %q; want %v, %d bytes, from %q", i, f.Status(i), f.Length(i), f.Source(i), w.status, w.length, w.source)
		}
		if w.status == record.OK {
			rows[i], total = []byte(w.value), total+len(w.value)
			if got := string(f.Record(i)); got != w.value {
				t.Errorf("record %d is %q, want %q", i, got, w.value)
			}
		}
		for k, text := range w.kept {
			if got := f.Kept(i, k); string(got) != text || (got == nil) != (text == "") {
				t.Errorf("field %d of record %d is %q, want %q", k, i, got, text)
			}
		}
		if fault := f.Fault(i); (fault != "") != (w.status == record.InvalidJSON) {
			t.Errorf("record %d, %v: the fault is %q", i, w.status, fault)
		}
	}
	if f.Bytes() != int64(total) {
		t.Errorf("Bytes() = %d, want %d", f.Bytes(), total)
	}
	wantRows(t, f, rows)
}

func TestAFieldOfJSONLines(t *testing.T) {
	lines := []string{
		`{"text":"abc","id":1,"meta":{"lang":"en"}}`,
		`{"id":"x","text":"a\n\u00e9"}`,
		`{"id":2}`,
		`{"text":null,"id":3}`,
		`{"text":["a"]}`,
		`{"text":"abc"`,
		`["text"]`,
		`{"text":"` + strings.Repeat("y", 20) + `","meta":{"lang":null}}`,
		`{"text":""}`,
	}
	all := []want{
		{record.OK, 3, "abc", lines[0], []string{"1", `"en"`}},
		{record.OK, 4, "a\né", lines[1], []string{`"x"`, ""}},
		{record.NoField, 0, "", lines[2], []string{"2", ""}},
		{record.NoField, 0, "", lines[3], []string{"3", ""}},
		{record.NoField, 0, "", lines[4], []string{"", ""}},
		{record.InvalidJSON, 0, "", lines[5], []string{"", ""}},
		{record.NoField, 0, "", lines[6], []string{"", ""}},
		{record.TooLarge, 20, "", lines[7], []string{"", "null"}},
		{record.OK, 0, "", lines[8], []string{"", ""}},
	}
	body := []byte(strings.Join(lines, "\r\n") + "\n\n  \n")
	s := jsonLines
	s.MaxRecord = 10
	wantSelected(t, open(t, s, body), all)
	s.NullMissing = true
	for _, i := range []int{2, 3, 4, 6} {
		all[i].status = record.Null
	}
	wantSelected(t, open(t, s, body), all)
}

// frameOf returns the bodies of all framings that hold JSON texts.
func frameOf(framing frame.Framing, records []string) []byte {
	var body []byte
	for _, r := range records {
		switch framing {
		case frame.NewlineDelimited:
			body = append(append(body, r...), '\n')
		case frame.LengthDelimited:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(r))), r...)
		case frame.VarintLengthDelimited:
			body = append(binary.AppendUvarint(body, uint64(len(r))), r...)
		case frame.None:
			body = append(body, r...)
		}
	}
	if framing == frame.JSONArray {
		body = []byte(" [ " + strings.Join(records, " , ") + " ] ")
	}
	return body
}

func TestAFieldInEveryFraming(t *testing.T) {
	records := []string{`{"text":"a","id":[1, 2]}`, `{"text":"\u00e9"}`, `{}`}
	all := []want{
		{record.OK, 1, "a", records[0], []string{"[1, 2]", ""}},
		{record.OK, 2, "é", records[1], []string{"", ""}},
		{record.NoField, 0, "", records[2], []string{"", ""}},
	}
	for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.JSONArray, frame.None} {
		t.Run(framing.String(), func(t *testing.T) {
			s := jsonLines
			s.Framing = framing
			if framing != frame.None {
				wantSelected(t, open(t, s, frameOf(framing, records)), all)
				return
			}
			for i, r := range records {
				f := open(t, s, []byte(r))
				if f.Framed() {
					t.Error("a message without framing is a frame")
				}
				wantSelected(t, f, all[i:i+1])
			}
		})
	}
}

func TestRecordsWithoutAField(t *testing.T) {
	lines := []string{`{"id":1}`, `[1]`, `{"id":`, `{"id":2,"text":"long enough"}`}
	body := []byte(strings.Join(lines, "\n"))
	s := frame.Splitter{Framing: frame.NewlineDelimited, Annotate: "millrace", MaxRecord: 20}
	wantSelected(t, open(t, s, body), []want{
		{record.OK, 8, lines[0], lines[0], nil},
		{record.InvalidJSON, 3, "", lines[1], nil},
		{record.InvalidJSON, 6, "", lines[2], nil},
		{record.TooLarge, 29, "", lines[3], nil},
	})
	s = frame.Splitter{Framing: frame.NewlineDelimited, Keep: []string{"id"}}
	wantSelected(t, open(t, s, body), []want{
		{record.OK, 8, lines[0], lines[0], []string{"1"}},
		{record.OK, 3, lines[1], lines[1], []string{""}},
		{record.InvalidJSON, 6, "", lines[2], []string{""}},
		{record.OK, 29, lines[3], lines[3], []string{"2"}},
	})
}

// TestAnnotatedRecords: a record is annotated if it is an object that directly contains the member.
func TestAnnotatedRecords(t *testing.T) {
	records := []struct {
		text      string
		annotated bool
	}{
		{`{"text":"a"}`, false}, {`{"text":"a","millrace":1}`, true}, {`{"m\u0069llrace":{},"text":"a"}`, true}, {`{"text":"millrace"}`, false},
		{`{"doc":{"millrace":1},"text":"\"millrace\":1"}`, false}, {`{"millrace":1,"text":"a","millrace":null}`, true}, {`{"millrace":1`, false}, {`["millrace"]`, false},
		{`{"Millrace":1}`, false}, {`{"millrace":7}`, true},
	}
	var texts []string
	for _, r := range records {
		texts = append(texts, r.text)
	}
	for _, s := range []frame.Splitter{
		{}, {Field: "text"}, {Keep: []string{"doc", "doc.millrace"}}, {Field: "text", Keep: []string{"millrace"}}, {Field: "millrace"},
	} {
		for _, framing := range []frame.Framing{frame.LengthDelimited, frame.NewlineDelimited} {
			s.Annotate, s.Framing = "millrace", framing
			f := open(t, s, frameOf(framing, texts))
			for i, r := range records {
				if f.IsAnnotated(i) != r.annotated {
					t.Errorf("%+v: %s is annotated: %t", s, r.text, f.IsAnnotated(i))
				}
			}
		}
	}
	s := frame.Splitter{Framing: frame.JSONArray, Annotate: "millrace"}
	if f := open(t, s, frameOf(frame.JSONArray, texts[:3])); f.IsAnnotated(0) || !f.IsAnnotated(1) || !f.IsAnnotated(2) {
		t.Error("the elements of an array are annotated in another way")
	}
}

// TestTheMostPaths: a splitter may have a field, an annotation and the largest number of kept fields, all with dots.
func TestTheMostPaths(t *testing.T) {
	s := frame.Splitter{Field: "doc.text", Annotate: "millrace"}
	for i := range frame.MaxKeep {
		s.Keep = append(s.Keep, fmt.Sprintf("doc.f%d", i))
	}
	f := open(t, s, fmt.Appendf(nil, `{"doc":{"text":"a","f%d":7},"millrace":1}`, frame.MaxKeep-1))
	if got := string(f.Record(0)); got != "a" || !f.IsAnnotated(0) || string(f.Kept(0, frame.MaxKeep-1)) != "7" {
		t.Errorf("the record is %q, annotated: %t, with %q", got, f.IsAnnotated(0), f.Kept(0, frame.MaxKeep-1))
	}
}

func TestElementsOfAnArray(t *testing.T) {
	deep := strings.Repeat("[", 80) + strings.Repeat("]", 80)
	elements := []string{`{"text":"a"}`, deep, "{\"text\":\"\xff\"}", `7`}
	body := frameOf(frame.JSONArray, elements)
	s := frame.Splitter{Framing: frame.JSONArray}
	all := []want{{source: elements[0]}, {source: elements[1]}, {source: elements[2]}, {source: elements[3]}}
	for i := range all {
		all[i].value, all[i].length = all[i].source, len(all[i].source)
	}
	wantSelected(t, open(t, s, body), all)
	s.Field = "text"
	wantSelected(t, open(t, s, body), []want{
		{record.OK, 1, "a", elements[0], nil},
		{record.InvalidJSON, 0, "", elements[1], nil},
		{record.InvalidJSON, 0, "", elements[2], nil},
		{record.NoField, 0, "", elements[3], nil},
	})
	wantSelected(t, open(t, s, []byte(" [ ] ")), nil)
}

func TestABrokenArrayIsAFrameError(t *testing.T) {
	for body, offset := range map[string]int64{
		"": 0, " {}": 1, "[": 1, "[1": 2, "[1,": 3, "[1,]": 3, "[1 2]": 3, "[1]]": 3, `[{"a":}]`: 6, "[\"\xff\",\"\n\"]": 6,
		"[" + strings.Repeat("[", 80) + "}": 81, "[" + strings.Repeat("[", 80): 81, "[nope]": 1,
	} {
		for _, field := range []string{"", "text"} {
			wantFault(t, frame.Splitter{Framing: frame.JSONArray, Field: field}, []byte(body), frame.Invalid, offset)
		}
	}
}

func TestFaultsNameTheByteInTheRecord(t *testing.T) {
	f := open(t, jsonLines, []byte("{\"text\":\"a\"}\n{\"text\":x}\n"))
	if got, want := f.Fault(1), "invalid JSON at byte 8: no JSON value begins here"; got != want {
		t.Errorf("the fault is %q, want %q", got, want)
	}
	f = open(t, frame.Splitter{Annotate: "millrace"}, []byte("7"))
	if got := f.Fault(0); !strings.Contains(got, "not an object") {
		t.Errorf("the fault is %q", got)
	}
}

// TestManyRecordsWithOneFault has one bad record of each kind among 10,000.
func TestManyRecordsWithOneFault(t *testing.T) {
	var body bytes.Buffer
	for i := range 10000 {
		switch i {
		case 5000:
			body.WriteString("{\"text\":\"a\"\n")
		case 7000:
			body.WriteString("{\"id\":1}\n")
		default:
			fmt.Fprintf(&body, "{\"id\":%d,\"text\":\"text %d\"}\n", i, i)
		}
	}
	f := open(t, jsonLines, body.Bytes())
	rows := drain(t, f, 1<<20, 1<<14, 1<<14)
	for i, row := range rows {
		value, status := fmt.Sprintf("text %d", i), record.OK
		switch i {
		case 5000:
			value, status = "", record.InvalidJSON
		case 7000:
			value, status = "", record.NoField
		}
		if string(row) != value || f.Status(i) != status {
			t.Fatalf("row %d is %q with status %v", i, row, f.Status(i))
		}
	}
}

func TestALongField(t *testing.T) {
	text := strings.Repeat(`0123456789abcde\n`, 1<<18)
	for _, framing := range []frame.Framing{frame.None, frame.NewlineDelimited, frame.JSONArray} {
		s := frame.Splitter{Framing: framing, Field: "text"}
		f := open(t, s, frameOf(framing, []string{`{"text":"` + text + `"}`}))
		if got, want := string(f.Record(0)), strings.ReplaceAll(text, `\n`, "\n"); got != want {
			t.Errorf("%v: the record has %d bytes, want %d", framing, len(got), len(want))
		}
		if f.Copied() != int64(len(text)-1<<18) {
			t.Errorf("%v: the frame has copied %d bytes", framing, f.Copied())
		}
	}
}

func TestAWarmFrameOfJSONAllocatesNothing(t *testing.T) {
	s, body := jsonLines, frameOf(frame.NewlineDelimited, []string{`{"text":"a\n","id":1}`, `{"text":"b","meta":{"lang":"en"}}`})
	var f frame.Frame
	allocations := testing.AllocsPerRun(100, func() {
		if err := s.Open(&f, "", body); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 1 || f.Records() != 2 { // the list of all paths
		t.Errorf("%v allocations for %d records", allocations, f.Records())
	}
}

// BenchmarkJSONLines measures Open and Fill for a field of JSON lines, 512 KiB per frame.
func BenchmarkJSONLines(b *testing.B) {
	for _, size := range []int{200, 2000, 20000} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			var body []byte
			for i := 0; len(body) < frameBytes; i++ {
				text := strings.Repeat("the record of a message and its frame ", size/38+1)[:size]
				body = append(body, fmt.Sprintf(`{"id":"doc-%06d","text":"%s","lang":"en"}`+"\n", i, text)...)
			}
			s := frame.Splitter{Framing: frame.NewlineDelimited, Field: "text"}
			into := newBatch(4<<20, 1<<16)
			var f frame.Frame
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Open(&f, "", body); err != nil {
					b.Fatal(err)
				}
				into.reset()
				for cursor := f.Cursor(); !cursor.Done(); {
					cursor.Fill(into, 1<<16)
				}
			}
		})
	}
}
