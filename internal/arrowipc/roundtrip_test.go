package arrowipc

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/client/arrow"
	"millrace/internal/record"
)

var lists = [][]Column{{}, {crc32c}, {minhash}, {crc32c, minhash}, {other, minhash, crc32c}, {packed}, {number, list}, {text}, {crc32c, all, text}, {places}, {text, places, crc32c}}

// TestOthersReadWhatWasEncoded reads every value with package client/arrow. It also joins the fields of records.
func TestOthersReadWhatWasEncoded(t *testing.T) {
	for _, columns := range lists {
		e := NewEncoder(columns)
		for _, n := range []int{1, 7, 8, 9, 64, 513, 1000} {
			for _, failing := range []int{0, 1, 5} {
				want := someRows(columns, n, failing)
				got, err := arrow.Decode(e.Append(nil, want))
				if err != nil {
					t.Fatalf("%d records: %v", n, err)
				}
				compare(t, columns, got, want)
			}
		}
		if got, err := arrow.Decode(e.Append(nil, Rows{Values: make([][]byte, len(columns))})); err != nil || got.Len() != 0 {
			t.Errorf("no records: %+v, %v", got, err)
		}
	}
}

// compare compares a decoded result with the encoded rows.
func compare(t *testing.T, columns []Column, got *arrow.Result, want Rows) {
	t.Helper()
	if !slices.Equal(got.Bytes, want.Lengths) {
		t.Fatalf("the lengths are %d, want %d", got.Bytes, want.Lengths)
	}
	rest := got.Columns
	for k, c := range columns {
		types := c.Types()
		of := rest[:len(types)]
		rest = rest[len(types):]
		for i, status := range want.Statuses {
			values := make([][]byte, len(types))
			for j := range of {
				values[j] = of[j].Bytes(i)
				if of[j].Spec != c.Spec || strings.TrimSpace(of[j].Field+" "+of[j].Type.String()) != types[j] {
					t.Fatalf("column %+v, want %s of %s", of[j], types[j], c.Spec)
				}
				null := c.Fields != nil && c.Fields[j].Type == PositionType && binary.LittleEndian.Uint64(want.Values[k][i*c.Width:]) == 0
				if (values[j] == nil) != (status != record.OK || null) || got.Statuses[i] != status.String() {
					t.Fatalf("%s of record %d is %q, its status %s, want %v", types[j], i, values[j], got.Statuses[i], status)
				}
			}
			if status != record.OK {
				continue
			}
			value := want.Values[k][i*c.Width:][:c.Width:c.Width]
			if c.binaries() > 0 {
				value = append(value, want.Strings[want.Spans[k][i].From:want.Spans[k][i].To]...)
			}
			if joined, ok := c.Join(values); !ok || !bytes.Equal(joined, value) {
				t.Fatalf("record %d of %s: %x, %v, want %x", i, c.Spec, joined, ok, value)
			}
			if values[0] = append(values[0], 0); c.binaries() == 0 {
				if _, ok := c.Join(values); ok {
					t.Errorf("%s: a value that is too long is accepted", c.Spec)
				}
			}
		}
	}
	if len(rest) > 0 {
		t.Errorf("more columns: %+v", rest)
	}
}

// TestStreamsDependOnTheirRowsAlone: the bytes of a stream depend only on its rows, and not on earlier output of the encoder.
func TestStreamsDependOnTheirRowsAlone(t *testing.T) {
	columns := []Column{crc32c, minhash, other, all, packed, text}
	used := NewEncoder(columns)
	prefix := []byte("before")
	for _, n := range []int{300, 0, 5, 64, 1} {
		for _, failing := range []int{0, 1, 3} {
			rows := someRows(columns, n, failing)
			want := NewEncoder(columns).Append(nil, rows)
			got := used.Append(prefix[:len(prefix):len(prefix)], rows)
			if !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("%d records: a reused encoder and a new encoder write different bytes", n)
			}
		}
	}
}

// TestSchemaAndNulls: the Arrow library reads one batch per stream, with the right types and nulls.
func TestSchemaAndNulls(t *testing.T) {
	columns := []Column{crc32c, minhash, other}
	rows := someRows(columns, 100, 4)
	reader, err := ipc.NewReader(bytes.NewReader(NewEncoder(columns).Append(nil, rows)))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	var types []string
	for _, f := range reader.Schema().Fields() {
		types = append(types, f.Name+" "+f.Type.String())
	}
	want := []string{"bytes uint64", "status utf8", "crc32c uint32",
		"minhash fixed_size_list<item: uint32>[128]", "sha fixed_size_binary[3]"}
	if !reflect.DeepEqual(types, want) {
		t.Errorf("columns %q, want %q", types, want)
	}
	if spec, _ := reader.Schema().Field(3).Metadata.GetValue("operator"); spec != minhash.Spec {
		t.Errorf("the spec of minhash is %q", spec)
	}
	if !reader.Next() {
		t.Fatal("no batch")
	}
	for k, column := range reader.RecordBatch().Columns() {
		for i, s := range rows.Statuses {
			if want := k >= 2 && s != record.OK; column.IsNull(i) != want {
				t.Fatalf("column %d, record %d: null is %t, want %t", k, i, !want, want)
			}
		}
	}
	if reader.Next() {
		t.Error("a second batch")
	}
}

func TestMaxBoundsEveryStream(t *testing.T) {
	for _, columns := range lists {
		for _, n := range []int{0, 1, 8, 63, 64, 65, 1000} {
			rows := someRows(columns, n, 3)
			for i := range rows.Statuses {
				rows.Statuses[i] = record.OperatorError // the longest
			}
			got, maximum := len(NewEncoder(columns).Append(nil, rows)), MaxBytes(columns, n, len(rows.Strings))
			if got > maximum {
				t.Errorf("%d records of %d columns: %d bytes, and MaxBytes is %d", n, len(columns), got, maximum)
			}
			if slack := 248 + 180*len(columns) + 300*fieldsOf(columns); maximum > got+slack {
				t.Errorf("%d records of %d columns: MaxBytes is %d, far above %d", n, len(columns), maximum, got)
			}
		}
	}
}

func TestAllocationsDoNotDependOnRows(t *testing.T) {
	columns := []Column{crc32c, minhash, all, text}
	e := NewEncoder(columns)
	strings := len(someRows(columns, 2000, 9).Strings)
	count := func(n int) float64 {
		rows, dst := someRows(columns, n, 9), make([]byte, 0, MaxBytes(columns, n, strings))
		return testing.AllocsPerRun(20, func() { dst = e.Append(dst[:0], rows) })
	}
	count(2000) // grow the encoder's memory
	if few, many := count(20), count(2000); many > few+2 {
		t.Errorf("%v allocations for 20 records, %v for 2000", few, many)
	}
	if got, maximum := e.Size(), MaxSize(columns, 2000, strings); got > maximum {
		t.Errorf("the encoder holds %d bytes, and MaxSize is %d", got, maximum)
	}
}

// fieldsOf returns the number of fields of the columns, of their lists and of positions.
func fieldsOf(columns []Column) (n int) {
	for _, c := range columns {
		for _, f := range c.Fields {
			n += 1 + min(f.Count, 1)
			if f.Type == PositionType || f.Type == PositionsType {
				n += 3
			}
		}
	}
	return n
}

// TestValuesOfFieldsAsOthersReadThem: a reader that uses only the Arrow library gets every value.
func TestValuesOfFieldsAsOthersReadThem(t *testing.T) {
	columns := []Column{all, text, list}
	rows := someRows(columns, 90, 4)
	reader, err := ipc.NewReader(bytes.NewReader(NewEncoder(columns).Append(nil, rows)))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if got, want := reader.Schema().Field(2).Type.String(), "struct<a: uint8, b: fixed_size_list<item: int8>[3], c: uint16, d: fixed_size_list<item: int16>[2], "+
		"text: binary, e: uint32, f: fixed_size_list<item: int32>[1], g: fixed_size_list<item: float32>[2], h: uint64, "+
		"i: fixed_size_list<item: int64>[2], more: binary, j: fixed_size_list<item: float64>[3], last: fixed_size_list<item: uint8>[5]>"; !strings.HasPrefix(strings.ReplaceAll(got, ", nullable", ""), want) {
		t.Errorf("the type is %s, want %s", got, want)
	}
	if !reader.Next() {
		t.Fatal("no batch")
	}
	fields := reader.RecordBatch().Column(2).(*array.Struct)
	column := func(name string) int {
		return slices.IndexFunc(all.Fields, func(f Field) bool { return f.Name == name })
	}
	for i, s := range rows.Statuses {
		data, span := rows.Values[0][i*all.Width:], rows.Spans[0][i]
		if fields.IsNull(i) != (s != record.OK) || reader.RecordBatch().Column(3).IsNull(i) != (s != record.OK) {
			t.Fatalf("record %d of status %v: null is %t", i, s, fields.IsNull(i))
		}
		if fields.IsNull(i) {
			continue
		}
		le, n := binary.LittleEndian, int(binary.LittleEndian.Uint32(data[12:]))
		doubles := fields.Field(column("j")).(*array.FixedSizeList).ListValues().(*array.Float64)
		words := fields.Field(column("d")).(*array.FixedSizeList).ListValues().(*array.Int16)
		alone := rows.Spans[1][i]
		for name, c := range map[string]struct{ got, want any }{
			"text":  {fields.Field(column("text")).(*array.Binary).Value(i), rows.Strings[span.From:][:n]},
			"more":  {fields.Field(column("more")).(*array.Binary).Value(i), rows.Strings[span.From+n : span.To]},
			"alone": {reader.RecordBatch().Column(3).(*array.Binary).Value(i), rows.Strings[alone.From:alone.To]},
			"a":     {fields.Field(column("a")).(*array.Uint8).Value(i), data[0]},
			"h":     {fields.Field(column("h")).(*array.Uint64).Value(i), le.Uint64(data[32:])},
			"j":     {math.Float64bits(doubles.Value(3*i + 2)), le.Uint64(data[64+16:])},
			"d":     {words.Value(2*i + 1), int16(le.Uint16(data[6+2:]))},
		} {
			if !reflect.DeepEqual(c.got, c.want) {
				t.Fatalf("record %d, %s: got %v, want %v", i, name, c.got, c.want)
			}
		}
	}
}
