package table

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// documents are records that are JSON objects.
type documents []string

// open returns the message with the documents.
func (d documents) open(t *testing.T) *frame.Frame {
	t.Helper()
	var body []byte
	for _, text := range d {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(text))), text...)
	}
	split := frame.Splitter{Framing: frame.LengthDelimited, Annotate: "millrace"}
	message := new(frame.Frame)
	if err := split.Open(message, "", body); err != nil {
		t.Fatal(err)
	}
	return message
}

func annotatedTable(t *testing.T, docs documents, statuses []record.Status) *Table {
	t.Helper()
	records := make([][]byte, len(docs))
	for i := range records {
		records[i] = []byte("123456789")
	}
	table := Reference(parseList(t, "crc32c"), records, statuses)
	table.Keep(nil, docs.open(t))
	table.Annotate("millrace")
	return table
}

// TestAnnotatedRecords checks that a record keeps its bytes, and that the new member replaces an earlier member with its name.
func TestAnnotatedRecords(t *testing.T) {
	const result = `"millrace":{"record":%,"bytes":9,"crc32c":"e3069283"}`
	for _, c := range [][2]string{
		{`{"text":"a","id":7}`, `{"text":"a","id":7,@}`},
		{`{}`, `{@}`},
		{"  {\n \"a\" : 1e3 \r\n } ", `{  "a" : 1e3,@}`},
		{`{"millrace":1}`, `{@}`},
		{`{"millrace":{"x":1},"a":2}`, `{"a":2,@}`},
		{`{"a":2, "millrace" : 3 , "b":4,"millrace":5}`, `{"a":2,"b":4,@}`},
		{`{"a":"\u0061","m\u0069llrace":3}`, `{"a":"\u0061",@}`},
		{`{"a":"\u0061 \"millrace\"","b":{"millrace":3}}`, `{"a":"\u0061 \"millrace\"","b":{"millrace":3},@}`},
		{`{"a":"}"}`, `{"a":"}",@}`},
	} {
		table := annotatedTable(t, documents{"{}", c[0]}, nil).Select([]uint32{1})
		want := strings.ReplaceAll(c[1], "@", strings.ReplaceAll(result, "%", "1"))
		if got := string(table.AppendSingle(nil, operator.Annotated)); got != want {
			t.Errorf("%q becomes\n%s, want\n%s", c[0], got, want)
		}
		if got := string(table.Append(nil, operator.Annotated, 0, 1)); got != want+"\n" {
			t.Errorf("%q becomes the line\n%s, want\n%s", c[0], got, want)
		}
	}
}

// TestANullRecordIsAnnotatedToo checks that the result of a record without its field has the status null.
func TestANullRecordIsAnnotatedToo(t *testing.T) {
	table := annotatedTable(t, documents{`{"id":1}`, `{"id":2}`}, []record.Status{record.OK, record.Null}).Select([]uint32{0, 1})
	const want = `{"id":1,"millrace":{"record":0,"bytes":9,"crc32c":"e3069283"}}
{"id":2,"millrace":{"record":1,"bytes":9,"error":{"reason":"null","message":"the record is null"}}}
`
	if got := string(table.Append(nil, operator.Annotated, 0, 2)); got != want {
		t.Errorf("the result is\n%s, want\n%s", got, want)
	}
}

// TestTheSizeOfAnnotatedRecordsIsBounded checks that no body exceeds its reserved memory.
func TestTheSizeOfAnnotatedRecordsIsBounded(t *testing.T) {
	table := annotatedTable(t, documents{`{"id":1}`, `{}`, `{"a":"` + strings.Repeat("x", 1000) + `"}`}, nil)
	table.Annotate(strings.Repeat("n", MaxName))
	s := table.Select([]uint32{0, 1, 2})
	if got, limit := len(s.Append(nil, operator.Annotated, 0, 3)), s.maxBytes(operator.Annotated, 0, 3); got > limit {
		t.Errorf("%d bytes, and at most %d are expected", got, limit)
	}
}

// BenchmarkAnnotate splits messages of 512 KiB with documents of about 512 bytes, and annotates the half of them that a filter keeps. It
// alternates between more messages than fit into the cache of a core.
func BenchmarkAnnotate(b *testing.B) {
	ops := parseList(b, "crc32c")
	half, err := filter.New("record.number % 2 == 0", ops, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, word := range map[string]string{"ASCII": "the record of a message ", "UTF-8": "les données reçues ", "escapes": `caf\u00e9 au lait `} {
		b.Run(name, func(b *testing.B) {
			const documents = 1024
			bodies := make([][]byte, 16)
			for i := range documents * len(bodies) {
				body := &bodies[i/documents]
				*body = fmt.Appendf(*body, `{"id":%d,"text":"%s"}`+"\n", i, strings.Repeat(word, 490/len(word)))
			}
			split := frame.Splitter{Framing: frame.NewlineDelimited, Field: "text", Annotate: "millrace"}
			var (
				f      frame.Frame
				t      Table
				body   []byte
				chosen []uint32
			)
			b.SetBytes(int64(len(bodies[0])))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := split.Open(&f, "", bodies[i%len(bodies)]); err != nil {
					b.Fatal(err)
				}
				t.Reset(ops, f.Records())
				t.Keep(nil, &f)
				t.Annotate("millrace")
				leftOut := make([]int, 2)
				chosen = t.Choose(half, t.Ask(half, chosen[:0], leftOut), chosen[:0], leftOut)
				body = t.Select(chosen).Append(body[:0], operator.Annotated, 0, len(chosen))
			}
			if len(chosen) != documents/2 {
				b.Fatalf("the filter keeps %d of %d documents", len(chosen), documents)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*documents), "ns/record")
		})
	}
}

// FuzzAnnotate decodes annotated records. All members except the annotation must be unchanged.
func FuzzAnnotate(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"millrace":[{"millrace":2}],"b":"\u006d"}`, ` { "x" : { } } `, `{"\u006dillrace":1,"m":"\n"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var before map[string]any
		if json.Unmarshal([]byte(text), &before) != nil || before == nil {
			return // not a record of this format
		}
		if status := (documents{text}).open(t).Status(0); status != record.OK {
			return // too deep, or not UTF-8
		}
		line := annotatedTable(t, documents{text}, nil).Select([]uint32{0}).AppendSingle(nil, operator.Annotated)
		var after map[string]any
		if err := json.Unmarshal(line, &after); err != nil || strings.ContainsAny(string(line), "\r\n") {
			t.Fatalf("%q becomes %q: %v", text, line, err)
		}
		if result, ok := after["millrace"].(map[string]any); !ok || result["crc32c"] != "e3069283" {
			t.Fatalf("%q becomes %q", text, line)
		}
		maps.DeleteFunc(before, func(name string, _ any) bool { return name == "millrace" })
		delete(after, "millrace")
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q becomes %q", text, line)
		}
	})
}
