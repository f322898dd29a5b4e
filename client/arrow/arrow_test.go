package arrow_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	clientarrow "millrace/client/arrow"
	"millrace/internal/arrowipc"
	"millrace/internal/record"
)

func TestFrameIsAStreamOfOneBinaryColumn(t *testing.T) {
	f := clientarrow.NewFrame("payload")
	for range 2 { // reuse the frame
		for _, record := range []string{"first", "", "third\nline"} {
			if err := f.Append([]byte(record)); err != nil {
				t.Fatal(err)
			}
		}
		f.AppendNull()
		if f.Len() != 4 {
			t.Errorf("%d records", f.Len())
		}
		body, err := f.Encode([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		reader, err := ipc.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("before"))))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for reader.Next() {
			column := reader.RecordBatch().Column(0).(*array.Binary)
			for i := range column.Len() {
				got = append(got, fmt.Sprintf("%s %v", column.Value(i), column.IsNull(i)))
			}
		}
		if want := []string{"first false", " false", "third\nline false", " true"}; !slices.Equal(got, want) || reader.Err() != nil {
			t.Errorf("%q, %v, want %q", got, reader.Err(), want)
		}
		if name := reader.Schema().Field(0).Name; name != "payload" || reader.Schema().NumFields() != 1 {
			t.Errorf("the schema is %v", reader.Schema())
		}
	}
	if f.Len() != 0 {
		t.Errorf("an encoded frame keeps %d records", f.Len())
	}
}

func TestFrameRefusesMoreThanItsOffsetsReach(t *testing.T) {
	f := clientarrow.NewFrame("payload")
	huge := make([]byte, 1<<31) // never written, so it takes no memory
	if err := f.Append(huge); !errors.Is(err, clientarrow.ErrFull) || f.Len() != 0 {
		t.Errorf("%v, %d records", err, f.Len())
	}
}

// row is a record of a result. Its signature has two numbers.
type row struct {
	bytes     uint64
	status    string
	crc32c    uint32
	signature [2]uint32
}

// result encodes batches of rows as a worker does.
func result(t testing.TB, batches ...[]row) []byte {
	t.Helper()
	signature := arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Uint32)
	spec := func(s string) arrow.Metadata { return arrow.NewMetadata([]string{"operator"}, []string{s}) }
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "bytes", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "status", Type: arrow.BinaryTypes.String},
		{Name: "crc32c", Type: arrow.PrimitiveTypes.Uint32, Nullable: true, Metadata: spec("crc32c")},
		{Name: "other", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "minhash", Type: signature, Nullable: true, Metadata: spec("minhash?hashes=2")},
	}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	for _, rows := range batches {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for _, r := range rows {
			b.Field(0).(*array.Uint64Builder).Append(r.bytes)
			b.Field(1).(*array.StringBuilder).Append(r.status)
			b.Field(3).AppendNull()
			list := b.Field(4).(*array.FixedSizeListBuilder)
			if r.status != "ok" {
				b.Field(2).AppendNull()
				list.Append(false)
				list.ValueBuilder().(*array.Uint32Builder).AppendValues([]uint32{0, 0}, nil)
				continue
			}
			b.Field(2).(*array.Uint32Builder).Append(r.crc32c)
			list.Append(true)
			list.ValueBuilder().(*array.Uint32Builder).AppendValues(r.signature[:], nil)
		}
		if err := w.Write(b.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var rows = []row{
	{9, "ok", 0xe3069283, [2]uint32{1, 2}},
	{0, "null", 0, [2]uint32{}},
	{70000, "too_large", 0, [2]uint32{}},
	{3, "ok", 7, [2]uint32{3, 4}},
	{4, "ok", 8, [2]uint32{1<<32 - 1, 5}},
}

func TestDecode(t *testing.T) {
	for _, body := range [][]byte{result(t, rows), result(t, rows[:2], nil, rows[2:])} {
		r, err := clientarrow.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		if r.Len() != len(rows) || len(r.Columns) != 3 {
			t.Fatalf("%d records, columns %+v", r.Len(), r.Columns)
		}
		crc32c, minhash := r.Column("crc32c"), r.Column("minhash?hashes=2")
		if minhash == nil || minhash != r.Column("minhash") || r.Column("other").Type.ID() != arrow.BINARY || r.Column("minhash?hashes=3") != nil {
			t.Fatalf("columns are found by neither name nor spec: %+v", r.Columns)
		}
		for i, want := range rows {
			if r.Bytes[i] != want.bytes || r.Statuses[i] != want.status || r.OK(i) != (want.status == "ok") {
				t.Errorf("record %d: %d bytes, %s, want %+v", i, r.Bytes[i], r.Statuses[i], want)
			}
			crc, signature := crc32c.Value(i), minhash.Value(i)
			if !r.OK(i) {
				if crc != nil || signature != nil {
					t.Errorf("record %d has the values %v, %v", i, crc, signature)
				}
				continue
			}
			if !slices.Equal(crc, []uint32{want.crc32c}) || !slices.Equal(signature, want.signature[:]) {
				t.Errorf("record %d: %v, %v, want %+v", i, crc, signature, want)
			}
		}
	}
}

func TestResultWithoutRecords(t *testing.T) {
	for _, body := range [][]byte{result(t), result(t, nil)} {
		if r, err := clientarrow.Decode(body); err != nil || r.Len() != 0 || r.Column("crc32c") == nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r, err := clientarrow.Decode(nil); err != nil || r.Len() != 0 || len(r.Columns) > 0 {
		t.Errorf("an empty body is %+v, %v", r, err)
	}
}

// TestNumbersOfRecords checks that the numbers of a filtered result don't become an operator's column.
func TestNumbersOfRecords(t *testing.T) {
	number := arrowipc.Column{Name: "record", Kind: arrowipc.Single, Width: 4, Fields: []arrowipc.Field{{Name: "record", Type: arrowipc.Uint32Type}}}
	operator := number
	operator.Spec = "record"
	values := []byte{3, 0, 0, 0, 7, 0, 0, 0}
	rows := arrowipc.Rows{Lengths: []uint64{1, 2}, Statuses: make([]record.Status, 2), Values: [][]byte{values, values}, Spans: make([][]arrowipc.Span, 2)}
	r, err := clientarrow.Decode(arrowipc.NewEncoder([]arrowipc.Column{operator, number}).Append(nil, rows))
	if err != nil || !slices.Equal(r.Numbers, []uint32{3, 7}) || len(r.Columns) != 1 || r.Column("record").Spec != "record" {
		t.Errorf("%+v, %v", r, err)
	}
	rows.Values, rows.Spans = rows.Values[:1], rows.Spans[:1]
	r, err = clientarrow.Decode(arrowipc.NewEncoder([]arrowipc.Column{operator}).Append(nil, rows))
	if err != nil || r.Numbers != nil || len(r.Columns) != 1 {
		t.Errorf("without numbers: %+v, %v", r, err)
	}
}

func TestDecodeRefusesOtherStreams(t *testing.T) {
	f := clientarrow.NewFrame("payload")
	frame, err := f.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := result(t, rows)
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"text":     {[]byte("{\"bytes\":9}\n"), "arrow"},
		"a frame":  {frame, `"payload", not "bytes"`},
		"the half": {whole[:len(whole)/2], "arrow"},
	} {
		if r, err := clientarrow.Decode(c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want an error that says %s", name, r, err, c.want)
		}
	}
}

// TestNumbersThatLieCostLittle replaces the number at each position of a result. A decoder that trusted wrong numbers
// would run out of memory.
func TestNumbersThatLieCostLittle(t *testing.T) {
	whole := result(t, rows)
	refused := 0
	for at := range len(whole) - 3 {
		for _, lie := range []uint32{1<<32 - 1, 1<<31 - 1, 1<<24 - 1, 5000, 0} {
			body := bytes.Clone(whole)
			binary.LittleEndian.PutUint32(body[at:], lie)
			if decode(t, body) != nil {
				refused++
			}
		}
	}
	if refused < len(whole) {
		t.Errorf("%d results are refused", refused)
	}
}

// decode decodes a body and reads all values. The test fails if decoding allocates far more than the body's length.
func decode(t *testing.T, body []byte) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := clientarrow.Decode(body)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(64*len(body)+1<<20) {
		t.Errorf("%d bytes allocated for a body of %d: %v", n, len(body), err)
	}
	if err != nil {
		return err
	}
	for i := range r.Len() {
		r.OK(i)
		r.Neardup(i)
		for k := range r.Columns {
			r.Columns[k].Value(i)
			r.Columns[k].Bytes(i)
		}
		for k := range r.Texts {
			r.Texts[k].Value(i)
		}
	}
	return nil
}

// FuzzDecode checks that no body makes Decode panic or allocate far more than its length.
func FuzzDecode(f *testing.F) {
	f.Add(result(f, rows))
	f.Add(result(f, rows[:1], rows[1:]))
	f.Add(result(f))
	f.Add(fields())
	f.Add(verdicts())
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = decode(t, body) // a changed body may be valid
	})
}

func BenchmarkFrame(b *testing.B) {
	f, record := clientarrow.NewFrame("payload"), make([]byte, 256)
	var body []byte
	b.SetBytes(512 << 10)
	b.ReportAllocs()
	for b.Loop() {
		for range 2048 {
			if err := f.Append(record); err != nil {
				b.Fatal(err)
			}
		}
		var err error
		if body, err = f.Encode(body[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	body := result(b, slices.Repeat(rows[3:4], 2048))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := clientarrow.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*2048/b.Elapsed().Seconds(), "records/s")
}
