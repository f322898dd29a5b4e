package frame_test

import (
	"bytes"
	"encoding/binary"
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

var binaryTypes = []arrow.DataType{
	arrow.BinaryTypes.Binary, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.LargeString,
	arrow.BinaryTypes.BinaryView, arrow.BinaryTypes.StringView,
}

// column builds a column of any binary or string type. A nil record is null.
func column(t testing.TB, typ arrow.DataType, records [][]byte) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	defer b.Release()
	for _, r := range records {
		if r == nil {
			b.AppendNull()
			continue
		}
		switch b := b.(type) {
		case *array.StringBuilder:
			b.Append(string(r))
		case *array.LargeStringBuilder:
			b.Append(string(r))
		case *array.BinaryBuilder:
			b.Append(r)
		case *array.BinaryViewBuilder:
			b.Append(r)
		case *array.StringViewBuilder:
			b.Append(string(r))
		default:
			t.Fatalf("no builder for %s", typ)
		}
	}
	return b.NewArray()
}

// field is a column of a test stream.
type field struct {
	name   string
	typ    arrow.DataType
	chunks []arrow.Array // one per record batch
}

func stream(t testing.TB, fields []field, options ...ipc.Option) []byte {
	t.Helper()
	var columns []arrow.Field
	for _, f := range fields {
		columns = append(columns, arrow.Field{Name: f.name, Type: f.typ, Nullable: true})
	}
	schema := arrow.NewSchema(columns, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(options, ipc.WithSchema(schema))...)
	for chunk := range fields[0].chunks {
		var arrays []arrow.Array
		for _, f := range fields {
			arrays = append(arrays, f.chunks[chunk])
		}
		if err := w.Write(array.NewRecordBatch(schema, arrays, int64(arrays[0].Len()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// textStream writes a stream with one column named text, and one record batch per chunk.
func textStream(t testing.TB, typ arrow.DataType, chunks [][][]byte, options ...ipc.Option) []byte {
	t.Helper()
	f := field{name: "text", typ: typ}
	for _, records := range chunks {
		f.chunks = append(f.chunks, column(t, typ, records))
	}
	return stream(t, []field{f}, options...)
}

var arrowSplitter = frame.Splitter{Framing: frame.Arrow}

var compressions = map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}}

func TestArrowColumnsOfEveryTypeRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var f frame.Frame
	for _, typ := range binaryTypes {
		for compression, options := range compressions {
			t.Run(typ.Name()+" "+compression, func(t *testing.T) {
				for range 30 {
					var all [][]byte
					var chunks [][][]byte
					withNulls := random.IntN(2) == 0
					for range random.IntN(5) {
						records := someRecords(random, random.IntN(40), 1+random.IntN(200))
						for i := range records {
							if withNulls && random.IntN(4) == 0 {
								records[i] = nil
							}
						}
						chunks, all = append(chunks, records), append(all, records...)
					}
					maxRecord := 50 + random.IntN(300)
					s := frame.Splitter{Framing: frame.Arrow, MaxRecord: maxRecord}
					if err := s.Open(&f, "", textStream(t, typ, chunks, options...)); err != nil {
						t.Fatal(err)
					}
					wantRecords(t, &f, all, maxRecord)
				}
			})
		}
	}
}

func TestCompressedBuffersCountAsInflated(t *testing.T) {
	records := [][]byte{bytes.Repeat([]byte("a"), 10_000), bytes.Repeat([]byte("b"), 10_000)}
	for compression, options := range compressions {
		f := open(t, arrowSplitter, textStream(t, arrow.BinaryTypes.String, [][][]byte{records}, options...))
		if got := f.Copied(); compression == "plain" && got != 0 || compression != "plain" && (got < 20_000 || got > 21_000) {
			t.Errorf("%s: %d bytes of 20000 were decompressed", compression, got)
		}
	}
}

func TestSlicesOfArrowColumns(t *testing.T) {
	records := texts("zero", "one", "<null>", "a value of more than twelve bytes", "", "five", "<null>", "seven", "eight", "nine")
	for _, typ := range binaryTypes {
		whole := column(t, typ, records)
		chunks := []arrow.Array{
			array.NewSlice(whole, 3, 9), array.NewSlice(whole, 0, 0), array.NewSlice(whole, 10, 10), array.NewSlice(whole, 1, 4),
		}
		body := stream(t, []field{{"text", typ, chunks}})
		wantRecords(t, open(t, arrowSplitter, body), append(append([][]byte{}, records[3:9]...), records[1:4]...), 1<<20)
	}
}

// TestNullsWithBytesAndValuesThatStartLate: in Arrow, a null may have bytes, and the first value may start after the
// beginning of the values.
func TestNullsWithBytesAndValuesThatStartLate(t *testing.T) {
	offsets := arrow.Int32Traits.CastToBytes([]int32{2, 4, 7, 7, 9})
	data := array.NewData(arrow.BinaryTypes.String, 4, []*memory.Buffer{
		memory.NewBufferBytes([]byte{0b1101}), memory.NewBufferBytes(offsets), memory.NewBufferBytes([]byte("__aabbbcc__")),
	}, nil, 1, 0)
	f := open(t, arrowSplitter, stream(t, []field{{"text", arrow.BinaryTypes.String, []arrow.Array{array.MakeFromData(data)}}}))
	wantRecords(t, f, texts("aa", "<null>", "", "cc"), 1<<20)
}

func TestAnArrowStreamWithoutRows(t *testing.T) {
	for _, typ := range binaryTypes {
		wantRecords(t, open(t, arrowSplitter, textStream(t, typ, nil)), nil, 1<<20)
		wantRecords(t, open(t, arrowSplitter, textStream(t, typ, [][][]byte{{}, {}})), nil, 1<<20)
	}
}

// TestTheColumnLiesBehindColumnsOfAllLayouts places the column after columns of all layouts, so that the indexes of its buffers vary.
func TestTheColumnLiesBehindColumnsOfAllLayouts(t *testing.T) {
	var fields []field
	structure := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		arrow.Field{Name: "b", Type: arrow.BinaryTypes.BinaryView})
	for i, typ := range []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.StringView, arrow.BinaryTypes.LargeString,
		&arrow.Decimal128Type{Precision: 10, Scale: 2}, arrow.FixedWidthTypes.Timestamp_us, structure,
		arrow.ListOf(structure), arrow.LargeListOf(arrow.PrimitiveTypes.Int8), arrow.FixedSizeListOf(3, arrow.BinaryTypes.Binary),
		arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), &arrow.FixedSizeBinaryType{ByteWidth: 5},
		arrow.SparseUnionOf([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String}, {Name: "y", Type: arrow.Null}}, []arrow.UnionTypeCode{0, 1}),
		arrow.DenseUnionOf([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int8}}, []arrow.UnionTypeCode{0}),
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), arrow.ListViewOf(arrow.BinaryTypes.Binary),
		arrow.LargeListViewOf(arrow.PrimitiveTypes.Int16),
	} {
		b := array.NewBuilder(memory.DefaultAllocator, typ)
		b.AppendEmptyValues(2)
		if typ == arrow.BinaryTypes.StringView {
			b.(*array.StringViewBuilder).Append("a value that needs a data buffer")
		} else {
			b.AppendEmptyValue()
		}
		fields = append(fields, field{fmt.Sprint("column ", i), typ, []arrow.Array{b.NewArray()}})
	}
	records := texts("first", "<null>", "a third value that is longer")
	for _, typ := range binaryTypes {
		for _, options := range compressions {
			body := stream(t, append(fields, field{"text", typ, []arrow.Array{column(t, typ, records)}}), options...)
			wantRecords(t, open(t, frame.Splitter{Framing: frame.Arrow, Field: "text"}, body), records, 1<<20)
		}
	}
}

func TestTheColumnIsNamedOrTheOnlyOne(t *testing.T) {
	text, numbers := column(t, arrow.BinaryTypes.String, texts("a")), column(t, arrow.BinaryTypes.Binary, texts("b"))
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.Append(1)
	count := b.NewArray()
	body := stream(t, []field{
		{"count", arrow.PrimitiveTypes.Int64, []arrow.Array{count}},
		{"text", arrow.BinaryTypes.String, []arrow.Array{text}}, {"raw", arrow.BinaryTypes.Binary, []arrow.Array{numbers}},
		{"twice", arrow.BinaryTypes.Binary, []arrow.Array{numbers}}, {"twice", arrow.BinaryTypes.Binary, []arrow.Array{numbers}},
	})
	wantRecords(t, open(t, frame.Splitter{Framing: frame.Arrow, Field: "raw"}, body), texts("b"), 1<<20)
	wantRecords(t, open(t, frame.Splitter{Framing: frame.Arrow, Field: "text"}, body), texts("a"), 1<<20)
	for name, want := range map[string]string{
		"":      `the stream has the binary and string columns "text", "raw", "twice", "twice": set MILLRACE_FIELD`,
		"count": `no binary or string column has the name "count", and the stream has the binary and string columns "text"`,
		"texts": `no binary or string column has the name "texts"`,
		"twice": `several columns have the name "twice"`,
	} {
		text := wantFault(t, frame.Splitter{Framing: frame.Arrow, Field: name}, body, frame.Invalid, 0)
		if !strings.Contains(text, want) {
			t.Errorf("column %q gives the error %q, want %q", name, text, want)
		}
	}
	body = stream(t, []field{{"count", arrow.PrimitiveTypes.Int64, []arrow.Array{count}}})
	if text := wantFault(t, arrowSplitter, body, frame.Invalid, 0); !strings.Contains(text, "no binary or string column") {
		t.Errorf("a stream without a candidate gives %q", text)
	}
}

// TestANameStaysWithinItsSchema: a name that exceeds the schema must not expose the memory after it, such as another message.
func TestANameStaysWithinItsSchema(t *testing.T) {
	body := stream(t, []field{{"text", arrow.BinaryTypes.String, nil}})
	name := bytes.LastIndex(body, []byte("\x04\x00\x00\x00text"))
	binary.LittleEndian.PutUint32(body[name:], uint32(len(body)-name))
	body = append(body, "secret of others"...)[:len(body)]
	text := wantFault(t, frame.Splitter{Framing: frame.Arrow, Field: "other"}, body, frame.Invalid, 0)
	if !strings.Contains(text, "metadata of the Arrow message is not valid") {
		t.Errorf("the error is %q", text)
	}
}

func TestASchemaThatIsNestedTooDeeply(t *testing.T) {
	nested := func(depth int) []byte {
		typ := arrow.PrimitiveTypes.Int8
		for range depth {
			typ = arrow.ListOf(typ)
		}
		return stream(t, []field{{"nested", typ, nil}, {"text", arrow.BinaryTypes.String, nil}})
	}
	wantRecords(t, open(t, arrowSplitter, nested(64)), nil, 1<<20)
	if text := wantFault(t, arrowSplitter, nested(65), frame.Invalid, 0); !strings.Contains(text, "nested too deeply") {
		t.Errorf("the error is %q", text)
	}
}

func TestLimitsOfAnArrowStream(t *testing.T) {
	chunks := [][][]byte{texts("aaaa", "bbbb"), texts("cccc"), texts("dddd")}
	body := textStream(t, arrow.BinaryTypes.String, chunks)
	third := int64(bytes.Index(body, []byte("cccc")))
	open(t, frame.Splitter{Framing: frame.Arrow, MaxRecords: 4, MaxBytes: int64(len(body))}, body)
	wantFault(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: 99}, body, frame.TooLarge, 99)
	fault := faultOf(t, frame.Splitter{Framing: frame.Arrow, MaxRecords: 2}, body)
	if fault.Reason != frame.TooLarge || fault.Offset <= int64(bytes.Index(body, []byte("bbbb"))) || fault.Offset >= third {
		t.Errorf("the third record of at most two gives %v, but its message lies before byte %d", fault, third)
	}
}

func TestCompressedBuffersStayWithinTheLimit(t *testing.T) {
	records := texts(strings.Repeat("a", 50_000), strings.Repeat("b", 50_000))
	magic := map[string]string{"lz4": "\x04\x22\x4d\x18", "zstd": "\x28\xb5\x2f\xfd"}
	for name, option := range map[string]ipc.Option{"lz4": ipc.WithLZ4(), "zstd": ipc.WithZstd()} {
		body := textStream(t, arrow.BinaryTypes.String, [][][]byte{records, records}, option)
		need := int64(2 * (100_000 + 3*4))
		wantRecords(t, open(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: need}, body), append(records, records...), 1<<20)
		fault := faultOf(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: need - 1}, body)
		if fault.Reason != frame.TooLarge || !strings.Contains(fault.Text, "after decompression") {
			t.Errorf("%s: %v", name, fault)
		}

		// The buffer declares a wrong length.
		declared := append(binary.LittleEndian.AppendUint64(nil, 100_000), magic[name]...)
		for _, lie := range []int64{99_999, 100_001, 1 << 62, -2} {
			before, after, found := bytes.Cut(body, declared)
			if !found {
				t.Fatalf("%s: no buffer declares %d bytes", name, 100_000)
			}
			wrong := append(binary.LittleEndian.AppendUint64(bytes.Clone(before), uint64(lie)), magic[name]...)
			fault := faultOf(t, frame.Splitter{Framing: frame.Arrow}, append(wrong, after...))
			if want := int64(len(before)); fault.Offset != want {
				t.Errorf("%s: a buffer that declares %d bytes gives %v, want the offset %d", name, lie, fault, want)
			}
		}
	}
}

// TestOverlappingViewsStayWithinTheLimit: views may overlap, so a small body can declare records of any total length.
func TestOverlappingViewsStayWithinTheLimit(t *testing.T) {
	const rows, size = 100, 50_000
	views := make([]byte, 16*rows)
	for i := range rows {
		binary.LittleEndian.PutUint32(views[16*i:], size)
	}
	data := array.NewData(arrow.BinaryTypes.BinaryView, rows, []*memory.Buffer{
		nil, memory.NewBufferBytes(views), memory.NewBufferBytes(make([]byte, size)),
	}, nil, 0, 0)
	body := stream(t, []field{{"text", arrow.BinaryTypes.BinaryView, []arrow.Array{array.MakeFromData(data)}}})
	if f := open(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: rows * size}, body); f.Bytes() != rows*size {
		t.Errorf("%d bytes, want %d", f.Bytes(), rows*size)
	}
	if fault := faultOf(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: rows*size - 1}, body); fault.Reason != frame.TooLarge {
		t.Errorf("views that overlap give %v", fault)
	}
}

func TestOffsetsThatPointOutsideOfTheValues(t *testing.T) {
	offsets := []int32{0, 3, 5, 9}
	good := textStream(t, arrow.BinaryTypes.String, [][][]byte{texts("abc", "de", "fghi")})
	at := bytes.Index(good, arrow.Int32Traits.CastToBytes(offsets))
	for i, wrong := range [][]int32{{1, 0, 5, 9}, {0, 6, 5, 9}, {0, 3, 5, 10}, {-1, 3, 5, 9}, {0, -3, 5, 9}, {0, 3, 5, 1 << 30}} {
		entry := []int{1, 2, 3, 0, 1, 3}[i]
		body := bytes.Clone(good)
		copy(body[at:], arrow.Int32Traits.CastToBytes(wrong))
		wantFault(t, arrowSplitter, body, frame.Invalid, int64(at+4*entry))
	}
	good = textStream(t, arrow.BinaryTypes.LargeString, [][][]byte{texts("abc", "de", "fghi")})
	at = bytes.Index(good, arrow.Int64Traits.CastToBytes([]int64{0, 3, 5, 9}))
	for i, wrong := range [][]int64{{1, 0, 5, 9}, {0, 6, 5, 9}, {0, 3, 5, 10}, {-1, 3, 5, 9}, {0, -3, 5, 9}, {0, 3, 5, 1 << 62}} {
		entry := []int{1, 2, 3, 0, 1, 3}[i]
		body := bytes.Clone(good)
		copy(body[at:], arrow.Int64Traits.CastToBytes(wrong))
		wantFault(t, arrowSplitter, body, frame.Invalid, int64(at+8*entry))
	}
}

func TestViewsThatPointOutsideOfTheirData(t *testing.T) {
	value := "a value that needs a data buffer"
	good := textStream(t, arrow.BinaryTypes.StringView, [][][]byte{texts("inline", value)})
	at := bytes.Index(good, []byte{byte(len(value)), 0, 0, 0, 'a', ' ', 'v', 'a'})
	for _, change := range []struct{ field, value int }{{0, len(value) + 1}, {0, -1}, {8, 1}, {8, -1}, {12, 1}, {12, -1}} {
		body := bytes.Clone(good)
		binary.LittleEndian.PutUint32(body[at+change.field:], uint32(change.value))
		wantFault(t, arrowSplitter, body, frame.Invalid, int64(at))
	}
}

func TestBodiesThatAreNoArrowStream(t *testing.T) {
	good := textStream(t, arrow.BinaryTypes.String, [][][]byte{texts("abc")})
	end := len(good) - 8 // the end marker has 8 bytes
	if f := open(t, arrowSplitter, good[:end]); f.Records() != 1 {
		t.Error("a stream without its end marker, which is optional, has no record")
	}
	wantFault(t, arrowSplitter, nil, frame.Invalid, 0)
	wantFault(t, arrowSplitter, good[end:], frame.Invalid, 8) // end marker without a schema
	wantFault(t, arrowSplitter, append(bytes.Clone(good), 0), frame.Invalid, int64(len(good)))
	wantFault(t, arrowSplitter, append(bytes.Clone(good[:end]), good...), frame.Invalid, int64(end)) // second schema
	for body, text := range map[string]string{
		`{"a":1}`:        "send a whole Arrow IPC stream",
		"ARROW1\x00\x00": "IPC stream format",
		"\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00": "two starts",
		"\xff\xff\xff\xff\x04\x00\x00\x00\x00\x00\x00\x00": "not valid",
	} {
		var f frame.Frame
		if err := arrowSplitter.Open(&f, "", []byte(body)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q gives %v, want an error with %q", body, err, text)
		}
	}
	for n := range end {
		var f frame.Frame
		err := arrowSplitter.Open(&f, "", good[:n])
		if err == nil && f.Records() != 0 {
			t.Fatalf("the first %d of %d bytes have %d records", n, len(good), f.Records())
		}
	}
}

// TestArrowStreamsWithoutContinuationMarkers: before Arrow 0.15, messages started with their length.
func TestArrowStreamsWithoutContinuationMarkers(t *testing.T) {
	body := textStream(t, arrow.BinaryTypes.String, [][][]byte{texts("abc", "<null>")})
	old := bytes.ReplaceAll(body, []byte{0xff, 0xff, 0xff, 0xff}, nil)
	wantRecords(t, open(t, arrowSplitter, old), texts("abc", "<null>"), 1<<20)
}

// TestEveryChangedByteOfAnArrowStreamIsHarmless: a changed byte may cause other records or an error. It must not cause
// a panic, or records beyond the limits.
func TestEveryChangedByteOfAnArrowStreamIsHarmless(t *testing.T) {
	for _, typ := range binaryTypes {
		for _, options := range compressions {
			chunks := [][][]byte{texts("abc", "<null>", strings.Repeat("long ", 20))}
			body := textStream(t, typ, chunks, options...)
			s := frame.Splitter{Framing: frame.Arrow, MaxBytes: 1 << 16, MaxRecords: 100}
			var f frame.Frame
			for i := range body {
				for _, change := range []byte{0x01, 0x80, 0xff, 0x7f} {
					body[i] ^= change
					if err := s.Open(&f, "", body); err == nil {
						drain(t, &f, 1<<10, 100, 100)
					}
					body[i] ^= change
				}
			}
		}
	}
}
