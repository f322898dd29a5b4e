package textframes

import (
	"encoding/json"
	"testing"

	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/operator"
)

// TestResultsOfDocuments checks the records that a filter keeps, and the documents of annotated results.
func TestResultsOfDocuments(t *testing.T) {
	texts := [][]byte{[]byte(`a "quoted" text`), []byte("two\nlines"), []byte("été"), {}}
	var documents [][]byte
	for i, text := range texts {
		document := AppendDocument(nil, i, "doc.body", text)
		var got map[string]any
		if err := json.Unmarshal(document, &got); err != nil || got["doc.body"] != string(text) || got["id"] != float64(i) || len(got) != 2 {
			t.Errorf("document %d is %s, %v", i, document, err)
		}
		documents = append(documents, document)
	}
	body, err := Append(nil, frame.NewlineDelimited, documents)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	m := memory.Messages{
		Operators: ops, Format: operator.Annotated,
		Split: frame.Splitter{Framing: frame.NewlineDelimited, Field: "doc.body", Annotate: "millrace"},
	}
	if m.Filter, err = filter.New("record.bytes >= 5 && record.number > 0", ops, nil); err != nil {
		t.Fatal(err)
	}
	want := `{"id":1,"doc.body":"two\nlines","millrace":{"record":1,"bytes":9,"crc32c":"` + crc(ops[0], texts[1]) + "\"}}\n" +
		`{"id":2,"doc.body":"été","millrace":{"record":2,"bytes":5,"crc32c":"` + crc(ops[0], texts[2]) + "\"}}\n"
	got, leftOut, err := Results(&m, body, texts, nil)
	if err != nil || leftOut != 2 || got.Records() != 2 || string(got.Append(nil, m.Format, 0, 2)) != want {
		t.Errorf("%d records are left out, %v, and the result is\n%swant\n%s", leftOut, err, got.Append(nil, m.Format, 0, got.Records()), want)
	}
	m.Filter, m.Format, m.Split.Annotate = nil, operator.JSON, ""
	if got, leftOut, err := Results(&m, body, texts, nil); err != nil || leftOut != 0 || got.Records() != len(texts) {
		t.Errorf("without a filter, %d records are in the result and %d are left out, %v", got.Records(), leftOut, err)
	}
	m.Split.Framing = frame.LengthDelimited
	if _, _, err := Results(&m, body, texts, nil); err == nil {
		t.Error("no error, but the body has another framing")
	}
}

// crc returns the checksum of a text in the format of results.
func crc(op operator.Operator, text []byte) string {
	result := operator.JSON.Append(nil, []operator.Operator{op}, 0, [][]byte{op.AppendReference(nil, text)})
	var object struct{ CRC32C string }
	if err := json.Unmarshal(result, &object); err != nil {
		panic(err)
	}
	return object.CRC32C
}
