package frame_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/internal/frame"
)

// fuzz opens any body with small limits. Open must not panic. A valid body must stay within the limits and have the same rows for
// all batch sizes.
func fuzz(f *testing.F, framing frame.Framing) { fuzzField(f, framing, "") }

// fuzzField is like fuzz, with a field.
func fuzzField(f *testing.F, framing frame.Framing, field string) {
	var reused frame.Frame
	f.Fuzz(func(t *testing.T, body []byte, maxRows, maximum uint8) {
		s := frame.Splitter{Framing: framing, Field: field, MaxRecords: 50, MaxBytes: 1 << 14, MaxRecord: 1000}
		err := s.Open(&reused, "", body)
		if err != nil {
			var fault *frame.Error
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > int64(len(body)) || fault.Text == "" {
				t.Fatalf("the error is %v for a body of %d bytes", err, len(body))
			}
			return
		}
		if reused.Records() > s.MaxRecords || reused.Bytes() > s.MaxBytes {
			t.Fatalf("the frame has %d records and %d bytes", reused.Records(), reused.Bytes())
		}
		rows := drain(t, &reused, 1000, 1+int(maxRows), 1+int(maximum))
		if len(rows) != reused.Records() {
			t.Fatalf("%d rows of %d records", len(rows), reused.Records())
		}
		total := 0
		for i, row := range rows {
			if want := reused.Record(i); reused.Status(i) == 0 && !bytes.Equal(row, want) {
				t.Fatalf("row %d is %q, want %q", i, row, want)
			}
			if reused.Status(i) != 0 && len(row) > 0 {
				t.Fatalf("row %d is %q, but its status is %v", i, row, reused.Status(i))
			}
			total += len(row)
		}
		if int64(total) != reused.Bytes() {
			t.Fatalf("the rows have %d bytes, the frame reports %d", total, reused.Bytes())
		}
	})
}

func FuzzNewlineDelimited(f *testing.F) {
	f.Add([]byte("a\r\n\nb"), uint8(1), uint8(1))
	f.Add([]byte("\r\n\r"), uint8(0), uint8(9))
	fuzz(f, frame.NewlineDelimited)
}

func FuzzFieldOfLines(f *testing.F) {
	f.Add([]byte("{\"text\":\"a\\n\"}\n\n{}\n{\"text\":"), uint8(1), uint8(1))
	fuzzField(f, frame.NewlineDelimited, "text")
}

func FuzzFieldOfArray(f *testing.F) {
	f.Add([]byte("[{\"text\":\"a\\n\"},{},\"\xff\"]"), uint8(1), uint8(1))
	fuzzField(f, frame.JSONArray, "text")
}

func FuzzJSONArray(f *testing.F) {
	f.Add([]byte("[1,[2,{\"a\":3}],\"\xff\"]"), uint8(1), uint8(1))
	fuzz(f, frame.JSONArray)
}

func FuzzLengthDelimited(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x00"), uint8(1), uint8(1))
	f.Add([]byte("\xff\xff\xff\xff"), uint8(0), uint8(9))
	fuzz(f, frame.LengthDelimited)
}

func FuzzVarintLengthDelimited(f *testing.F) {
	f.Add([]byte("\x02ab\x00\x81\x00c"), uint8(1), uint8(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), uint8(0), uint8(9))
	fuzz(f, frame.VarintLengthDelimited)
}

func FuzzArrow(f *testing.F) {
	for _, typ := range binaryTypes {
		for _, options := range compressions {
			chunks := [][][]byte{texts("abc", "<null>", "a value that needs a data buffer"), {}, texts("")}
			f.Add(textStream(f, typ, chunks, options...), uint8(1), uint8(2))
		}
	}
	f.Add(dictionaryStream(f), uint8(1), uint8(2))
	fuzz(f, frame.Arrow)
}

func dictionaryStream(t testing.TB) []byte {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	first, _ := encoded(t, typ, texts("a", "<null>", "b"), []int{0, 1, -1, 2})
	second, _ := encoded(t, typ, texts("c"), []int{0, 0})
	return stream(t, []field{{"text", typ, []arrow.Array{first, second}}})
}

// FuzzArrowAgrees compares the records with arrow-go's values. It skips streams that one of the readers rejects,
// because arrow-go reads all columns but checks less.
func FuzzArrowAgrees(f *testing.F) {
	for _, typ := range binaryTypes {
		for _, options := range compressions {
			f.Add(textStream(f, typ, [][][]byte{texts("abc", "<null>", "a value that needs a data buffer"), texts("", "d")}, options...))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var ours frame.Frame
		if arrowSplitter.Open(&ours, "", body) != nil {
			return
		}
		theirs, err := arrowValues(body)
		if err != nil {
			return
		}
		if len(theirs) != ours.Records() {
			t.Fatalf("%d records, arrow-go reads %d", ours.Records(), len(theirs))
		}
		for i, want := range theirs {
			if !bytes.Equal(ours.Record(i), want) || (ours.Status(i) == 0) != (want != nil) {
				t.Fatalf("record %d is %q, arrow-go reads %q", i, ours.Record(i), want)
			}
		}
	})
}

var (
	errPanic      = errors.New("arrow-go panicked")
	errDictionary = errors.New("the test doesn't read dictionary-encoded columns")
)

// arrowValues reads the only binary or string column with arrow-go. A nil value is null.
func arrowValues(body []byte) (values [][]byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errPanic
		}
	}()
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	for r.Next() {
		batch := r.RecordBatch()
		for i := range int(batch.NumCols()) {
			column := batch.Column(i)
			if column.DataType().ID() == arrow.DICTIONARY {
				return nil, errDictionary
			}
			if isText(column) {
				values = appendValues(values, column)
			}
		}
	}
	return values, r.Err()
}

// isText reports whether a frame can take its records from the column.
func isText(column arrow.Array) bool {
	for _, typ := range binaryTypes {
		if arrow.TypeEqual(typ, column.DataType()) {
			return true
		}
	}
	return false
}

func appendValues(values [][]byte, column arrow.Array) [][]byte {
	for i := range column.Len() {
		if column.IsNull(i) {
			values = append(values, nil)
			continue
		}
		var value []byte
		switch c := column.(type) {
		case *array.Binary:
			value = c.Value(i)
		case *array.LargeBinary:
			value = c.Value(i)
		case *array.BinaryView:
			value = c.Value(i)
		default:
			value = []byte(column.ValueStr(i))
		}
		values = append(values, append([]byte{}, value...))
	}
	return values
}
