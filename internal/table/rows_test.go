package table

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// rowsTable returns a table for an Arrow stream with two columns. One has the texts, and the other refers to a dictionary with the given
// value. Record 1 is null.
func rowsTable(t *testing.T, texts []string, value string) *Table {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "kind", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i, text := range texts {
		b.Field(0).(*array.StringBuilder).Append(text)
		if i == 1 {
			b.Field(0).(*array.StringBuilder).SetNull(1)
		}
		if err := b.Field(1).(*array.BinaryDictionaryBuilder).AppendString(value); err != nil {
			t.Fatal(err)
		}
	}
	var body bytes.Buffer
	w := ipc.NewWriter(&body, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(b.NewRecordBatch()), w.Close()); err != nil {
		t.Fatal(err)
	}
	var f frame.Frame
	s := frame.Splitter{Framing: frame.Arrow, Field: "text", Annotate: "millrace"}
	if err := s.Open(&f, "", body.Bytes()); err != nil {
		t.Fatal(err)
	}
	records := make([][]byte, len(texts))
	for i := range records {
		records[i] = f.Record(i)
	}
	table := Reference(parseList(t, "crc32c"), records, nil)
	table.SetStatus(1, record.Null)
	table.Keep(nil, &f)
	table.Annotate("millrace")
	return table
}

// TestPartsOfRows checks that each part is a complete stream, and that all parts together have the rows of a single stream.
func TestPartsOfRows(t *testing.T) {
	var texts []string
	var chosen []uint32
	for i := range 500 {
		texts, chosen = append(texts, strings.Repeat("x", i)), append(chosen, uint32(i))
	}
	table := rowsTable(t, texts, "a kind").Select(chosen)
	whole := table.Append(nil, operator.Annotated, 0, len(chosen))
	if limit := table.maxBytes(operator.Annotated, 0, len(chosen)); len(whole) > limit {
		t.Errorf("the stream has %d bytes, and maxBytes is %d", len(whole), limit)
	}
	for _, limit := range []int{4 << 10, 20 << 10, 1 << 20} {
		_, parts, err := table.Parts([]byte("before"), operator.Annotated, limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, p := range parts {
			if p.From != rows || len(p.Body) > limit || !slices.Equal(p.Body, table.Append(nil, operator.Annotated, p.From, p.To)) {
				t.Errorf("limit %d: the part with the records [%d, %d) has %d bytes", limit, p.From, p.To, len(p.Body))
			}
			r, err := ipc.NewReader(bytes.NewReader(p.Body))
			if err != nil {
				t.Fatal(err)
			}
			for r.Next() {
				for _, text := range strings.Split(fmt.Sprint(r.RecordBatch().Column(0)), " ") {
					if length := len(strings.Trim(text, `[]"`)); text != "(null)" && length != rows {
						t.Fatalf("row %d has a text of %d bytes", rows, length)
					}
					rows++
				}
			}
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
		}
		if rows != len(chosen) || len(parts) > 1 != (limit < len(whole)) {
			t.Errorf("limit %d: %d parts have %d rows, want %d", limit, len(parts), rows, len(chosen))
		}
	}
	table = rowsTable(t, []string{"a", "b", strings.Repeat("x", 5000)}, "a kind").Select([]uint32{0, 1, 2})
	var single *RecordTooLargeError
	if _, _, err := table.Parts(nil, operator.Annotated, 5000, nil); !errors.As(err, &single) || single.Record != 2 {
		t.Errorf("a text of 5000 bytes fits into 5000 bytes: %v", err)
	}
}

// TestBatchesOfOneRow checks that the results of many batches aren't counted as repetitions.
func TestBatchesOfOneRow(t *testing.T) {
	const rows = 300
	schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	var body bytes.Buffer
	var chosen []uint32
	w := ipc.NewWriter(&body, ipc.WithSchema(schema))
	for i := range rows {
		b.Field(0).(*array.StringBuilder).Append("a text")
		if err := w.Write(b.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
		chosen = append(chosen, uint32(i))
	}
	var f frame.Frame
	s := frame.Splitter{Framing: frame.Arrow, Annotate: "millrace"}
	if err := errors.Join(w.Close(), s.Open(&f, "", body.Bytes())); err != nil {
		t.Fatal(err)
	}
	records := slices.Repeat([][]byte{[]byte("a text")}, rows)
	table := Reference(parseList(t, "quality,crc32c,minhash"), records, nil)
	table.Keep(nil, &f)
	table.Annotate("millrace")
	if _, parts, err := table.Select(chosen).Parts(nil, operator.Annotated, 64<<10, nil); err != nil || len(parts) < 2 {
		t.Errorf("%d parts; %v", len(parts), err)
	}
}

// TestADictionaryThatIsTooLargeForParts checks that a large dictionary is an error of the message, because each record alone
// would have the same error.
func TestADictionaryThatIsTooLargeForParts(t *testing.T) {
	table := rowsTable(t, []string{"a", "b"}, strings.Repeat("k", 10_000)).Select([]uint32{0, 1})
	_, _, err := table.Parts(nil, operator.Annotated, 20_000, nil)
	if err == nil || errors.As(err, new(*RecordTooLargeError)) || !strings.Contains(err.Error(), "dictionaries") {
		t.Errorf("the error is %v", err)
	}
	if _, parts, err := table.Parts(nil, operator.Annotated, 40_000, nil); err != nil || len(parts) != 1 {
		t.Errorf("with more space there are %d parts; %v", len(parts), err)
	}
}
