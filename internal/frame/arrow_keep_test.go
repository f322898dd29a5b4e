package frame_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
)

// columnOf returns a column with the given values, which are texts. The text "<null>" is null.
func columnOf(t testing.TB, typ arrow.DataType, values ...string) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	for _, v := range values {
		if v == "<null>" {
			b.AppendNull()
		} else if err := b.AppendValueFromString(v); err != nil {
			t.Fatal(err)
		}
	}
	return b.NewArray()
}

// TestKeptColumnsOfEveryType uses two record batches, because the row numbers restart in the second batch.
func TestKeptColumnsOfEveryType(t *testing.T) {
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	words, _ := encoded(t, dictionary, texts("x", "y\n"), []int{1, -1, 0})
	more, _ := encoded(t, dictionary, texts("z"), []int{0, 0})
	binary := arrow.BinaryTypes.String
	for _, c := range []struct {
		name          string
		first, second arrow.Array
		want          []string // empty texts are absent
	}{
		{"string", columnOf(t, binary, `a"\b`, "<null>", ""), columnOf(t, binary, "é\x01", "\xff"), []string{`"a\"\\b"`, "", `""`, `"é\u0001"`, `"` + "\ufffd" + `"`}},
		{"large", columnOf(t, arrow.BinaryTypes.LargeString, "a", "b", "c"), columnOf(t, arrow.BinaryTypes.LargeString, "d", "<null>"), []string{`"a"`, `"b"`, `"c"`, `"d"`, ""}},
		{"view", columnOf(t, arrow.BinaryTypes.StringView, "a", strings.Repeat("b", 20), "<null>"), columnOf(t, arrow.BinaryTypes.StringView, "c", "d"), []string{`"a"`, `"` + strings.Repeat("b", 20) + `"`, "", `"c"`, `"d"`}},
		{"dictionary", words, more, []string{`"y\u000a"`, "", `"x"`, `"z"`, `"z"`}},
		{"int8", columnOf(t, arrow.PrimitiveTypes.Int8, "-128", "<null>", "127"), columnOf(t, arrow.PrimitiveTypes.Int8, "-1", "0"), []string{"-128", "", "127", "-1", "0"}},
		{"uint8", columnOf(t, arrow.PrimitiveTypes.Uint8, "255", "0", "1"), columnOf(t, arrow.PrimitiveTypes.Uint8, "7", "<null>"), []string{"255", "0", "1", "7", ""}},
		{"int16", columnOf(t, arrow.PrimitiveTypes.Int16, "-32768", "1", "2"), columnOf(t, arrow.PrimitiveTypes.Int16, "3", "4"), []string{"-32768", "1", "2", "3", "4"}},
		{"uint32", columnOf(t, arrow.PrimitiveTypes.Uint32, "4294967295", "1", "2"), columnOf(t, arrow.PrimitiveTypes.Uint32, "3", "4"), []string{"4294967295", "1", "2", "3", "4"}},
		{"int64", columnOf(t, arrow.PrimitiveTypes.Int64, "-9223372036854775808", "1", "2"), columnOf(t, arrow.PrimitiveTypes.Int64, "3", "4"), []string{"-9223372036854775808", "1", "2", "3", "4"}},
		{"uint64", columnOf(t, arrow.PrimitiveTypes.Uint64, "18446744073709551615", "1", "2"), columnOf(t, arrow.PrimitiveTypes.Uint64, "3", "4"), []string{"18446744073709551615", "1", "2", "3", "4"}},
		{"float32", columnOf(t, arrow.PrimitiveTypes.Float32, "0.1", "NaN", "-Inf"), columnOf(t, arrow.PrimitiveTypes.Float32, "1e30", "2"), []string{"0.1", "", "", "1e+30", "2"}},
		{"float64", columnOf(t, arrow.PrimitiveTypes.Float64, "0.1", "<null>", fmt.Sprint(math.MaxFloat64)), columnOf(t, arrow.PrimitiveTypes.Float64, "-0", "3"), []string{"0.1", "", "1.7976931348623157e+308", "-0", "3"}},
		{"bool", columnOf(t, arrow.FixedWidthTypes.Boolean, "true", "false", "<null>"), columnOf(t, arrow.FixedWidthTypes.Boolean, "false", "true"), []string{"true", "false", "", "false", "true"}},
		{"gone", columnOf(t, binary, "a", "b", "c"), columnOf(t, binary, "d", "e"), []string{"", "", "", "", ""}},
	} {
		for compression, options := range compressions {
			t.Run(c.name+" "+compression, func(t *testing.T) {
				name := c.name
				if name == "gone" {
					name = "other"
				}
				body := stream(t, []field{
					{"text", binary, []arrow.Array{columnOf(t, binary, "1", "2", "<null>"), columnOf(t, binary, "4", "5")}},
					{name, c.first.DataType(), []arrow.Array{c.first, c.second}},
				}, options...)
				f := open(t, frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: []string{"text", c.name}}, body)
				for i, want := range c.want {
					if got := f.Kept(i, 1); string(got) != want || (got == nil) != (want == "") {
						t.Errorf("%s of record %d is %s, want %s", c.name, i, got, want)
					}
				}
				if got := string(f.Kept(4, 0)); got != `"5"` || f.KeptBytes() == 0 {
					t.Errorf("text of record 4 is %s", got)
				}
			})
		}
	}
}

func TestColumnsThatCannotBeKept(t *testing.T) {
	binary := arrow.BinaryTypes.Binary
	body := stream(t, []field{
		{"text", arrow.BinaryTypes.String, []arrow.Array{columnOf(t, arrow.BinaryTypes.String, "a")}},
		{"raw", binary, []arrow.Array{column(t, binary, texts("b"))}},
		{"at", arrow.FixedWidthTypes.Date32, []arrow.Array{columnOf(t, arrow.FixedWidthTypes.Date32, "2026-01-01")}},
		{"half", arrow.FixedWidthTypes.Float16, []arrow.Array{columnOf(t, arrow.FixedWidthTypes.Float16, "1")}},
	})
	for _, name := range []string{"raw", "at", "half"} {
		text := wantFault(t, frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: []string{name}}, body, frame.Invalid, 0)
		if !strings.Contains(text, `the column "`+name+`" has a type that can't be kept`) {
			t.Errorf("the error is %q", text)
		}
	}
}

func TestKeptColumnsAreBounded(t *testing.T) {
	typ := arrow.BinaryTypes.String
	control := strings.Repeat("\x01", 1000) // six bytes each in JSON
	body := stream(t, []field{{"text", typ, []arrow.Array{columnOf(t, typ, "a")}}, {"id", typ, []arrow.Array{columnOf(t, typ, control)}}})
	text := wantFault(t, frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: []string{"id"}, MaxBytes: 5000}, body, frame.TooLarge, 0)
	if !strings.Contains(text, "MILLRACE_KEEP_FIELDS") {
		t.Errorf("the error is %q", text)
	}
}

// FuzzKeptColumns opens any stream with kept columns, without a panic. The kept values are within the limit.
func FuzzKeptColumns(f *testing.F) {
	typ := arrow.BinaryTypes.String
	for _, options := range compressions {
		f.Add(stream(f, []field{
			{"text", typ, []arrow.Array{columnOf(f, typ, "a", "<null>")}}, {"id", arrow.PrimitiveTypes.Int32, []arrow.Array{columnOf(f, arrow.PrimitiveTypes.Int32, "1", "<null>")}},
			{"good", arrow.FixedWidthTypes.Boolean, []arrow.Array{columnOf(f, arrow.FixedWidthTypes.Boolean, "true", "false")}},
		}, options...))
	}
	s := frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: []string{"id", "good"}, MaxRecords: 50, MaxBytes: 1 << 14}
	var reused frame.Frame
	f.Fuzz(func(t *testing.T, body []byte) {
		if s.Open(&reused, "", body) != nil {
			return
		}
		total := 0
		for i := range reused.Records() {
			total += len(reused.Kept(i, 0)) + len(reused.Kept(i, 1))
		}
		if int64(total) != reused.KeptBytes() || int64(total) > s.MaxBytes {
			t.Fatalf("%d bytes are kept, KeptBytes is %d", total, reused.KeptBytes())
		}
	})
}
