package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
)

// annotated is the splitter of a worker with annotated results.
var annotated = frame.Splitter{Framing: frame.Arrow, Field: "text", Annotate: "millrace"}

// resultSchema has the columns of a result.
var resultSchema = arrow.NewSchema([]arrow.Field{
	{Name: "bytes", Type: arrow.PrimitiveTypes.Uint64},
	{Name: "status", Type: arrow.BinaryTypes.String},
	{Name: "minhash", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Uint32), Nullable: true, Metadata: arrow.MetadataFrom(map[string]string{"operator": "minhash?hashes=2"})},
}, nil)

// batchOf returns a batch with rows from JSON.
func batchOf(t testing.TB, schema *arrow.Schema, rows []string) arrow.RecordBatch {
	t.Helper()
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// resultsOf returns results with the given number of rows.
func resultsOf(t testing.TB, rows int) arrow.RecordBatch {
	t.Helper()
	var text []string
	for i := range rows {
		list := fmt.Sprintf("[%d,7]", i)
		if i%5 == 0 {
			list = "null"
		}
		text = append(text, fmt.Sprintf(`{"bytes":%d,"status":%q,"minhash":%s}`, i, strings.Repeat("o", i%4), list))
	}
	return batchOf(t, resultSchema, text)
}

// streamOf returns a stream of batches. Batches without rows are written too.
func streamOf(t testing.TB, schema *arrow.Schema, batches []arrow.RecordBatch, options ...ipc.Option) []byte {
	t.Helper()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(options, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))...)
	for _, batch := range batches {
		if err := w.Write(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// tableOf reads a stream into one chunk per column.
func tableOf(t *testing.T, stream []byte) arrow.Table {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var batches []arrow.RecordBatch
	for r.Next() {
		r.RecordBatch().Retain()
		batches = append(batches, r.RecordBatch())
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return array.NewTableFromRecords(r.Schema(), batches)
}

// wantAnnotated compares a stream with rows of batches and with results. It reads the stream with arrow-go.
func wantAnnotated(t *testing.T, stream []byte, name string, schema *arrow.Schema, batches []arrow.RecordBatch, rows []uint32, results arrow.RecordBatch) {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	fields := slices.DeleteFunc(schema.Fields(), func(f arrow.Field) bool { return f.Name == name })
	fields = append(fields, arrow.Field{Name: name, Type: arrow.StructOf(results.Schema().Fields()...)})
	metadata := schema.Metadata()
	if want := arrow.NewSchema(fields, &metadata); !r.Schema().Equal(want) || !r.Schema().Metadata().Equal(metadata) {
		t.Fatalf("the schema is %v, want %v", r.Schema(), want)
	}
	var single []arrow.RecordBatch
	for _, batch := range batches {
		for i := range batch.NumRows() {
			single = append(single, batch.NewSlice(i, i+1))
		}
	}
	at := 0
	for r.Next() {
		got := r.RecordBatch()
		for i := range got.NumRows() {
			row, want := got.NewSlice(i, i+1), single[rows[at]]
			for k, column := 0, 0; k < int(want.NumCols()); k++ {
				if want.ColumnName(k) == name {
					continue
				}
				if !array.Equal(row.Column(column), want.Column(k)) {
					t.Fatalf("column %s of record %d is %v, want %v", want.ColumnName(k), rows[at], row.Column(column), want.Column(k))
				}
				column++
			}
			last := row.Column(int(row.NumCols()) - 1).(*array.Struct)
			for k := range results.NumCols() {
				if want := array.NewSlice(results.Column(int(k)), int64(at), int64(at)+1); !array.Equal(last.Field(int(k)), want) {
					t.Fatalf("%s of record %d is %v, want %v", results.ColumnName(int(k)), rows[at], last.Field(int(k)), want)
				}
			}
			at++
		}
	}
	if r.Err() != nil || at != len(rows) {
		t.Fatalf("%d rows, want %d; %v", at, len(rows), r.Err())
	}
}

// TestAnnotatedRows copies random rows of columns of every type. Some streams have a column that the results replace.
func TestAnnotatedRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	metadata := arrow.MetadataFrom(map[string]string{"pandas": "{}"})
	schema := arrow.NewSchema(rowSchema.Fields(), &metadata)
	for compression, options := range compressions {
		t.Run(compression, func(t *testing.T) {
			var batches []arrow.RecordBatch
			n := 0
			for _, rows := range []int{3, 0, 1, 40, 100} {
				var text []string
				for range rows {
					text, n = append(text, rowJSON(random, n)), n+1
				}
				batches = append(batches, batchOf(t, schema, text))
			}
			f := open(t, annotated, streamOf(t, schema, batches, options...))
			for _, name := range []string{"millrace", "kind", "view", "place", "id"} {
				for _, share := range []int{0, 1, 2, 9, 10} {
					var rows []uint32
					for i := range n {
						if random.IntN(10) < share {
							rows = append(rows, uint32(i))
						}
					}
					results := resultsOf(t, len(rows))
					encoded := streamOf(t, resultSchema, []arrow.RecordBatch{results})
					got, err := f.AppendRows([]byte("before"), rows, name, encoded)
					if err != nil {
						t.Fatal(err)
					}
					wantAnnotated(t, got[len("before"):], name, schema, batches, rows, results)
					if found, err := frame.Results(got[len("before"):], name); err != nil {
						t.Fatal(err)
					} else if read := tableOf(t, found); !array.TableEqual(read, tableOf(t, encoded)) {
						t.Fatalf("the results in the stream are %v, want %v", read, results)
					}
					if again, err := f.AppendRows(nil, rows, name, encoded); err != nil || !bytes.Equal(again, got[len("before"):]) {
						t.Fatalf("the same rows give another stream; %v", err)
					}
					if head, err := f.AppendHead(nil, name, encoded); err != nil || share == 10 && len(head) >= len(got) {
						t.Fatalf("the head has %d bytes, the stream %d; %v", len(head), len(got), err)
					}
				}
			}
		})
	}
}

// TestColumnsThatCannotBeAnnotated checks that the error names the column.
func TestColumnsThatCannotBeAnnotated(t *testing.T) {
	runs := arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int8)
	for name, typ := range map[string]arrow.DataType{
		"run-end encoded": runs,
		"list view":       arrow.ListViewOf(arrow.PrimitiveTypes.Int8),
		"union":           arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int8}}, []arrow.UnionTypeCode{0}),
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}, {Name: "outer", Type: arrow.StructOf(arrow.Field{Name: "inner", Type: typ})}}, nil)
		var f frame.Frame
		var fault *frame.Error
		err := annotated.Open(&f, "", streamOf(t, schema, nil))
		if !errors.As(err, &fault) || fault.Reason != frame.Invalid || !strings.Contains(err.Error(), `the column "outer" has the type `+name) || f.IsArrow() {
			t.Errorf("%s: opening the stream returns %v", name, err)
		}
	}
}

// FuzzAnnotatedRows copies rows of any stream that Open accepts. It must not panic, and must stay within the reserved memory.
func FuzzAnnotatedRows(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, options := range compressions {
		rows := []string{rowJSON(random, 1), rowJSON(random, 2), rowJSON(random, 3)}
		f.Add(streamOf(f, rowSchema, []arrow.RecordBatch{batchOf(f, rowSchema, rows)}, options...), uint8(3))
	}
	s := annotated
	s.MaxRecords, s.MaxBytes = 50, 1<<16
	results := make([][]byte, s.MaxRecords+1)
	for n := range results {
		results[n] = streamOf(f, resultSchema, []arrow.RecordBatch{resultsOf(f, n)})
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		var opened frame.Frame
		if s.Open(&opened, "", body) != nil {
			return
		}
		var rows []uint32
		for i := 0; i < opened.Records(); i += 1 + int(step%4) {
			rows = append(rows, uint32(i))
		}
		encoded := results[len(rows)]
		stream, err := opened.AppendRows(nil, rows, "kind", encoded)
		if err != nil {
			if fault := new(frame.Error); !errors.As(err, &fault) || fault.Text == "" {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		if limit := opened.MaxRows() + 2*len(encoded); len(stream) > limit {
			t.Fatalf("the stream of rows has %d bytes, more than %d", len(stream), limit)
		}
		if _, err := frame.Results(stream, "kind"); err != nil {
			t.Fatalf("the results in the stream of rows: %v", err)
		}
		again := s
		again.MaxBytes, again.MaxRecords = 0, 0
		var copied frame.Frame
		if err := again.Open(&copied, "", stream); err != nil {
			t.Fatalf("the stream of rows is invalid: %v", err)
		}
		for at, i := range rows {
			if copied.Records() != len(rows) || copied.Status(at) != opened.Status(int(i)) || !bytes.Equal(copied.Record(at), opened.Record(int(i))) {
				t.Fatalf("record %d differs in the stream of rows", i)
			}
		}
	})
}
