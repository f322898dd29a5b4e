package client_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/client"
	"millrace/internal/ingest/results"
)

// TestHeadersAreThoseOfTheWorker compares the header names with the worker's. Only tests of this package can import the
// worker's packages.
func TestHeadersAreThoseOfTheWorker(t *testing.T) {
	for got, want := range map[string]string{
		client.HeaderStream:          results.HeaderStream,
		client.HeaderSequence:        results.HeaderSequence,
		client.HeaderSubject:         results.HeaderSubject,
		client.HeaderOperators:       results.HeaderOperators,
		client.HeaderAnnotation:      results.HeaderAnnotation,
		client.HeaderReason:          results.HeaderReason,
		client.HeaderError:           results.HeaderError,
		client.HeaderDeliveries:      results.HeaderDeliveries,
		client.HeaderInput:           results.HeaderInput,
		client.HeaderOmitted:         results.HeaderOmitted,
		client.HeaderPayloadSequence: results.HeaderPayloadSequence,
		client.HeaderPayloadBytes:    results.HeaderPayloadBytes,
		client.HeaderPayloadDigest:   results.HeaderPayloadDigest,
	} {
		if got != want {
			t.Errorf("%s here is %s in the worker", got, want)
		}
	}
}

func TestParts(t *testing.T) {
	for value, want := range map[string]client.Part{"1/1": {1, 1}, "2/3": {2, 3}, "": {1, 1}, "2147483647/2147483647": {1<<31 - 1, 1<<31 - 1}} {
		got, err := client.ParsePart(value)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", value, got, err, want)
		}
		if value != "" && got.String() != value {
			t.Errorf("%q is written as %q", value, got)
		}
	}
	for _, value := range []string{"0/1", "2/1", "1", "1/", "/1", "1/1/1", "-1/1", "1/2147483648", "a/b", " 1/2"} {
		if got, err := client.ParsePart(value); err == nil || !strings.Contains(err.Error(), "i/n") {
			t.Errorf("%q is %v, %v, want an error that says i/n", value, got, err)
		}
	}
}

func TestLines(t *testing.T) {
	body := `{"bytes":9,"crc32c":"e3069283","minhash":{"k":4,"seed":4294967295,"signature":[529274414,833389941]}}
{"bytes":70000,"error":{"reason":"too_large","message":"at most 65536 bytes"}}
`
	var lines []client.Line
	for line, err := range client.Lines([]byte(body)) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if len(lines) != 2 || lines[0].Bytes != 9 || lines[0].Error != nil || len(lines[0].Values) != 2 {
		t.Fatalf("%+v", lines)
	}
	if got := string(lines[0].Values["crc32c"]); got != `"e3069283"` {
		t.Errorf("crc32c is %s", got)
	}
	var minhash client.Minhash
	if err := json.Unmarshal(lines[0].Values["minhash"], &minhash); err != nil {
		t.Fatal(err)
	}
	if want := (client.Minhash{K: 4, Seed: 1<<32 - 1, Signature: []uint32{529274414, 833389941}}); !reflect.DeepEqual(minhash, want) {
		t.Errorf("minhash is %+v, want %+v", minhash, want)
	}
	want := client.Line{Bytes: 70000, Error: &client.RecordError{Reason: "too_large", Message: "at most 65536 bytes"}, Values: map[string]json.RawMessage{}}
	if !reflect.DeepEqual(lines[1], want) || lines[1].Error.Error() != "too_large: at most 65536 bytes" {
		t.Errorf("%+v, want %+v", lines[1], want)
	}
	for line, err := range client.Lines(nil) {
		t.Errorf("an empty body has the line %+v, %v", line, err)
	}
}

func TestLinesNameTheLineThatIsNoResult(t *testing.T) {
	for text, want := range map[string]string{
		`{"bytes":1`:                 "line 2: unexpected end",
		`{}`:                         `line 2: not a result: the key "bytes"`,
		`null`:                       `line 2: not a result: the key "bytes"`,
		`[]`:                         "line 2: json",
		`{"bytes":-1}`:               "line 2: bytes",
		`{"bytes":1,"error":"text"}`: "line 2: error",
		`{"bytes":1,"record":"a"}`:   "line 2: record",
		``:                           "line 2: unexpected end",
	} {
		n := 0
		for _, err := range client.Lines([]byte("{\"bytes\":1}\n" + text + "\n{\"bytes\":1}\n")) {
			n++
			if n == 2 && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("%s: error %v, want %q", text, err, want)
			}
			if n == 1 && err != nil || n > 2 {
				t.Errorf("%s: result %d: %v", text, n, err)
			}
		}
		if n != 2 {
			t.Errorf("%s: %d results", text, n)
		}
	}
}

// TestLinesWithNumbers checks that results of a worker with a filter have the numbers of their records.
func TestLinesWithNumbers(t *testing.T) {
	var numbers []int
	for line, err := range client.Lines([]byte(`{"record":0,"bytes":9,"crc32c":"e3069283"}` + "\n" + `{"record":70000,"bytes":9,"crc32c":"e3069283"}` + "\n")) {
		if err != nil || line.Record == nil || len(line.Values) != 1 {
			t.Fatalf("%+v, %v", line, err)
		}
		numbers = append(numbers, *line.Record)
	}
	if !slices.Equal(numbers, []int{0, 70000}) {
		t.Errorf("the numbers are %v", numbers)
	}
	for line, err := range client.Lines([]byte(`{"bytes":9,"crc32c":"e3069283"}`)) {
		if err != nil || line.Record != nil {
			t.Errorf("a line without a number: %+v, %v", line, err)
		}
	}
}

// TestDocuments reads annotated documents. Each document must be unchanged, and only the last member with the annotation's name counts.
func TestDocuments(t *testing.T) {
	lines := []string{
		`{"id":7, "text":"a\u0062","millrace":{"record":3,"bytes":2,"fields":{"id":7},"crc32c":"9e83486d"}}`,
		`{"millrace":1,"a":{"millrace":{}},"millrace":{"record":12,"bytes":0,"error":{"reason":"null","message":"the record is null"}}}`,
	}
	var got []client.Document
	for d, err := range client.Documents([]byte(strings.Join(lines, "\n")+"\n"), "millrace") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	if len(got) != 2 || string(got[0].JSON) != lines[0] || string(got[1].JSON) != lines[1] {
		t.Fatalf("%+v", got)
	}
	if l := got[0].Line; *l.Record != 3 || l.Bytes != 2 || string(l.Values["crc32c"]) != `"9e83486d"` || string(l.Fields["id"]) != "7" {
		t.Errorf("%+v", l)
	}
	if l := got[1].Line; *l.Record != 12 || l.Error == nil || l.Error.Reason != "null" || len(l.Values) > 0 {
		t.Errorf("%+v", l)
	}
	for d, err := range client.Documents(nil, "millrace") {
		t.Errorf("an empty body has the document %+v, %v", d, err)
	}
	for text, want := range map[string]string{
		`{"a":`:                    "line 2: unexpected end",
		`[]`:                       "line 2: json",
		`{"Millrace":{}}`:          `line 2: not a document with results: the member "millrace"`,
		`{"millrace":{}}`:          `line 2: millrace: not a result`,
		`{"millrace":{"bytes":-1}`: "line 2: unexpected end",
	} {
		n := 0
		for _, err := range client.Documents([]byte(lines[0]+"\n"+text+"\n"+lines[0]+"\n"), "millrace") {
			if n++; n == 2 && (err == nil || !strings.HasPrefix(err.Error(), want)) || n == 1 && err != nil {
				t.Errorf("%s: error %v, want %q", text, err, want)
			}
		}
		if n != 2 {
			t.Errorf("%s: %d documents", text, n)
		}
	}
}

func TestFrames(t *testing.T) {
	records := [][]byte{[]byte("first"), {}, bytes.Repeat([]byte("x"), 300)}
	var newline, length, varint []byte
	for _, record := range records {
		var err error
		if newline, err = client.AppendNewline(newline, record); err != nil {
			t.Fatal(err)
		}
		if length, err = client.AppendLength(length, record); err != nil {
			t.Fatal(err)
		}
		varint = client.AppendVarint(varint, record)
	}
	x := strings.Repeat("x", 300)
	if want := "first\n\n" + x + "\n"; string(newline) != want {
		t.Errorf("newline: %q, want %q", newline, want)
	}
	if want := "\x00\x00\x00\x05first\x00\x00\x00\x00\x00\x00\x01\x2c" + x; string(length) != want {
		t.Errorf("length: %q, want %q", length, want)
	}
	if want := "\x05first\x00\xac\x02" + x; string(varint) != want {
		t.Errorf("varint: %q, want %q", varint, want)
	}
	if n, size := binary.Uvarint(varint[7:]); n != 300 || size != 2 {
		t.Errorf("the length of 300 reads as %d in %d bytes", n, size)
	}
}

func TestNewlineRefusesRecordsThatWouldBeReadAsOthers(t *testing.T) {
	for record, want := range map[string]string{"two\nlines": "LF at byte 3 of 9", "\n": "LF at byte 0", "end\r": "byte 3"} {
		frame, err := client.AppendNewline([]byte("before\n"), []byte(record))
		if !errors.Is(err, client.ErrRecord) || !strings.Contains(err.Error(), want) || string(frame) != "before\n" {
			t.Errorf("%q: %q, %v, want an error that says %q", record, frame, err, want)
		}
	}
	if frame, err := client.AppendNewline(nil, []byte("a\rb")); err != nil || string(frame) != "a\rb\n" {
		t.Errorf("CR inside a record: %q, %v", frame, err)
	}
}

func TestFramesGrowWithoutOtherAllocations(t *testing.T) {
	frame, record := make([]byte, 0, 1<<10), []byte("record")
	if n := testing.AllocsPerRun(100, func() {
		frame, _ = client.AppendNewline(frame[:0], record)
		frame, _ = client.AppendLength(frame, record)
		frame = client.AppendVarint(frame, record)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUnknownStatusesAreReadable checks a status that this version doesn't define, because later workers may have more statuses.
func TestUnknownStatusesAreReadable(t *testing.T) {
	r, err := client.Decode(version2(0, []client.Status{9}, column{spec: "crc32c", stride: 4, values: [][]byte{nil}}))
	if err != nil {
		t.Fatal(err)
	}
	if record := r.Record(0); record.Status.String() != "Status(9)" || record.Value(0) != nil {
		t.Errorf("status %v, value %v", record.Status, record.Value(0))
	}
}
