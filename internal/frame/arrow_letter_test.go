package frame_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
)

// rowSchema has a column of each type whose rows can be copied.
var rowSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "good", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "nothing", Type: arrow.Null, Nullable: true},
	{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "day", Type: arrow.FixedWidthTypes.Date32},
	{Name: "price", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}, Nullable: true},
	{Name: "hash", Type: &arrow.FixedSizeBinaryType{ByteWidth: 3}, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "raw", Type: arrow.BinaryTypes.LargeBinary, Nullable: true},
	{Name: "view", Type: arrow.BinaryTypes.StringView, Nullable: true},
	{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	{Name: "long", Type: arrow.LargeListOf(arrow.ListOf(arrow.PrimitiveTypes.Float64)), Nullable: true},
	{Name: "pair", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Uint8), Nullable: true},
	{Name: "map", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), Nullable: true},
	{Name: "place", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float32, Nullable: true}, arrow.Field{Name: "name", Type: arrow.BinaryTypes.String}), Nullable: true},
	{Name: "kind", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
}, nil)

// rowJSON returns a random row as JSON. Some values are null.
func rowJSON(random *rand.Rand, i int) string {
	or := func(value string) string {
		if random.IntN(4) == 0 {
			return "null"
		}
		return value
	}
	word := func() string { return fmt.Sprintf("%q", strings.Repeat("w", random.IntN(30))) }
	return fmt.Sprintf(`{"id":%s,"good":%s,"nothing":null,"at":%s,"day":"2026-01-%02d","price":%s,"hash":%s,"text":%s,"raw":%s,"view":%s,"tags":%s,"long":%s,"pair":%s,"map":%s,"place":%s,"kind":%s}`,
		or(fmt.Sprint(i)), or(fmt.Sprint(i%2 == 0)), or(`"2026-01-01T00:00:00Z"`), 1+i%28, or(`"12.34"`), or(`"YWJj"`), or(word()), or(`"YWI="`), or(word()),
		or(fmt.Sprintf("[%s,null,%s]", word(), word())), or(`[[1.5],[],[2,3]]`), or(fmt.Sprintf("[%d,2]", i%200)), or(`[{"key":"a","value":1},{"key":"b","value":null}]`),
		or(fmt.Sprintf(`{"x":%s,"name":%s}`, or("1.5"), word())), or(fmt.Sprintf(`"kind %d"`, i%3)))
}

// TestLettersOfArrowRows compares each row's stream with arrow-go's slice of the batch.
func TestLettersOfArrowRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for compression, options := range compressions {
		t.Run(compression, func(t *testing.T) {
			var out bytes.Buffer
			w := ipc.NewWriter(&out, append(options, ipc.WithSchema(rowSchema))...)
			var batches []arrow.RecordBatch
			n := 0
			for _, rows := range []int{3, 0, 1, 40} {
				var text []string
				for range rows {
					text, n = append(text, rowJSON(random, n)), n+1
				}
				batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, rowSchema, strings.NewReader("["+strings.Join(text, ",")+"]"))
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Write(batch); err != nil {
					t.Fatal(err)
				}
				batches = append(batches, batch)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			s := frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: []string{"id"}}
			f := open(t, s, out.Bytes())
			i := 0
			for _, batch := range batches {
				for row := range int(batch.NumRows()) {
					letter, contentType := f.Letter(i)
					if contentType != "application/vnd.apache.arrow.stream" {
						t.Fatalf("the letter of record %d has the type %q", i, contentType)
					}
					wantRow(t, letter, batch.NewSlice(int64(row), int64(row)+1))
					again := open(t, s, letter)
					if again.Records() != 1 || again.Status(0) != f.Status(i) || !bytes.Equal(again.Record(0), f.Record(i)) || !bytes.Equal(again.Kept(0, 0), f.Kept(i, 0)) {
						t.Errorf("the letter of record %d has other records", i)
					}
					i++
				}
			}
			if i != f.Records() {
				t.Errorf("%d rows, %d records", i, f.Records())
			}
		})
	}
}

func wantRow(t *testing.T, stream []byte, want arrow.RecordBatch) {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if !r.Next() || !array.RecordEqual(r.RecordBatch(), want) {
		t.Fatalf("the row is %v, want %v; %v", r.RecordBatch(), want, r.Err())
	}
	for i, column := range r.RecordBatch().Columns() {
		if column.NullN() != want.Column(i).NullN() {
			t.Fatalf("column %d has %d nulls, want %d", i, column.NullN(), want.Column(i).NullN())
		}
	}
	if r.Next() || r.Err() != nil {
		t.Fatalf("the stream has more rows, or ends with %v", r.Err())
	}
}

// TestARowThatCannotBeCopied: the letter contains only the record.
func TestARowThatCannotBeCopied(t *testing.T) {
	typ := arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int8)
	b := array.NewRunEndEncodedBuilder(memory.DefaultAllocator, typ.RunEnds(), typ.Encoded())
	b.Append(1)
	if err := b.ValueBuilder().AppendValueFromString("1"); err != nil {
		t.Fatal(err)
	}
	body := stream(t, []field{{"text", arrow.BinaryTypes.String, []arrow.Array{columnOf(t, arrow.BinaryTypes.String, "abc")}}, {"runs", typ, []arrow.Array{b.NewArray()}}})
	f := open(t, frame.Splitter{Framing: frame.Arrow}, body)
	if letter, contentType := f.Letter(0); string(letter) != "abc" || contentType != "" {
		t.Errorf("the letter is %q of type %q", letter, contentType)
	}
}

// FuzzLetters calls Letter for the records of any stream that Open accepts. It must not panic.
func FuzzLetters(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, options := range compressions {
		var out bytes.Buffer
		w := ipc.NewWriter(&out, append(options, ipc.WithSchema(rowSchema))...)
		batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, rowSchema, strings.NewReader("["+rowJSON(random, 1)+","+rowJSON(random, 2)+"]"))
		if err != nil {
			f.Fatal(err)
		}
		if err := w.Write(batch); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(out.Bytes())
	}
	s := frame.Splitter{Framing: frame.Arrow, Field: "text", MaxRecords: 50, MaxBytes: 1 << 16}
	f.Fuzz(func(t *testing.T, body []byte) {
		var opened frame.Frame
		if s.Open(&opened, "", body) != nil {
			return
		}
		for i := range opened.Records() {
			if letter, _ := opened.Letter(i); int64(len(letter)) > s.MaxBytes+2*int64(len(body))+1<<16 {
				t.Fatalf("the letter of record %d has %d bytes", i, len(letter))
			}
		}
	})
}
