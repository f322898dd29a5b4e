package arrow_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	clientarrow "millrace/client/arrow"
	"millrace/internal/arrowipc"
	"millrace/internal/record"
)

// fields returns a result of operators with structs, as the worker encodes it. Record 1 failed.
func fields() []byte {
	columns := []arrowipc.Column{
		{Name: "entropy", Spec: "entropy?bits=5", Kind: arrowipc.Struct, Width: 8, Fields: []arrowipc.Field{
			{Name: "mean", Type: arrowipc.Float32Type, At: 0}, {Name: "peak", Type: arrowipc.Uint32Type, At: 4}}},
		{Name: "top", Spec: "top", Kind: arrowipc.Struct, Width: 12, Fields: []arrowipc.Field{
			{Name: "pair", Type: arrowipc.Uint32Type, Count: 2, At: 4}, {Name: "small", Type: arrowipc.Int8Type, Count: 3, At: 0}}},
		{Name: "text", Spec: "text", Kind: arrowipc.Struct, Width: 8, Fields: []arrowipc.Field{
			{Name: "a", Type: arrowipc.BinaryType, At: 0}, {Name: "b", Type: arrowipc.BinaryType, At: 4}}},
		{Name: "plain", Spec: "plain", Kind: arrowipc.Single, Width: 4, Fields: []arrowipc.Field{{Name: "n", Type: arrowipc.Uint32Type}}},
	}
	rows := arrowipc.Rows{Lengths: []uint64{3, 0, 9}, Statuses: []record.Status{record.OK, record.OperatorError, record.OK}}
	for k, c := range columns {
		values := make([]byte, 3*c.Width)
		if c.Name == "text" {
			rows.Strings = []byte("firstone12")
			rows.Spans = [][]arrowipc.Span{2: {{From: 0, To: 8}, {}, {From: 8, To: 10}}, 3: nil}
			values[0], values[4], values[16], values[20] = 5, 3, 0, 2
			rows.Values = append(rows.Values, values)
			continue
		}
		for i := range 3 {
			for at := 0; at < c.Width && i != 1; at += 4 {
				binary.LittleEndian.PutUint32(values[i*c.Width+at:], uint32(100*k+10*i+at))
			}
		}
		rows.Values = append(rows.Values, values)
	}
	return arrowipc.NewEncoder(columns).Append(nil, rows)
}

func TestFieldsOfStructsAreColumns(t *testing.T) {
	r, err := clientarrow.Decode(fields())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range r.Columns {
		names = append(names, c.Name+"."+c.Field)
	}
	if want := []string{"entropy.mean", "entropy.peak", "top.pair", "top.small", "text.a", "text.b", "plain."}; !slices.Equal(names, want) {
		t.Fatalf("columns %v, want %v", names, want)
	}
	for name, want := range map[string][3][]uint32{
		"entropy.peak": {{4}, nil, {24}}, "entropy?bits=5": {{4}, nil, {24}}, "entropy": {{4}, nil, {24}},
		"top.pair": {{104, 108}, nil, {124, 128}}, "plain": {{300}, nil, {320}},
	} {
		c := r.Column(name)
		if c == nil {
			t.Errorf("%s isn't found", name)
			continue
		}
		for i := range want {
			if got := c.Value(i); !slices.Equal(got, want[i]) || (got == nil) != (want[i] == nil) {
				t.Errorf("%s of record %d: %v, want %v", name, i, got, want[i])
			}
		}
	}
	for name, want := range map[string][3]string{"text.a": {"first", "-", ""}, "text": {"first", "-", ""}, "text.b": {"one", "-", "12"}} {
		for i := range want {
			if got := r.ByteStrings(name).Value(i); string(got) != want[i] && (want[i] != "-" || got != nil) {
				t.Errorf("%s of record %d: %q, want %q", name, i, got, want[i])
			}
		}
	}
	if c := r.ByteStrings("entropy.peak"); c != nil {
		t.Errorf("numbers are found as byte strings: %+v", c)
	}
	for _, name := range []string{"entropy.", "entropy.none", "plain.n", "none"} {
		if c := r.Column(name); c != nil {
			t.Errorf("%s is found: %+v", name, c)
		}
	}
	mean, small := r.Column("entropy.mean"), r.Column("top.small")
	for i, want := range []struct {
		mean  []float32
		small []int8
	}{{[]float32{math.Float32frombits(0)}, []int8{100, 0, 0}}, {}, {[]float32{math.Float32frombits(20)}, []int8{120, 0, 0}}} {
		if got := clientarrow.Numbers[float32](mean, i); !slices.Equal(got, want.mean) || mean.Value(i) != nil {
			t.Errorf("entropy.mean of record %d: %v, want %v", i, got, want.mean)
		}
		if got := clientarrow.Numbers[int8](small, i); !slices.Equal(got, want.small) || len(small.Bytes(i)) != len(want.small) {
			t.Errorf("top.small of record %d: %v, want %v", i, got, want.small)
		}
	}
}

// TestNumbersOfStructsThatLieCostLittle shows that no wrong number makes Decode panic or allocate much memory.
func TestNumbersOfStructsThatLieCostLittle(t *testing.T) {
	whole := fields()
	for at := range len(whole) - 3 {
		for _, lie := range []uint32{1<<32 - 1, 1<<31 - 1, 5000, 0} {
			body := slices.Clone(whole)
			binary.LittleEndian.PutUint32(body[at:], lie)
			_ = decode(t, body)
		}
	}
}

func ExampleResult_Column_field() {
	result, err := clientarrow.Decode(fields())
	if err != nil {
		fmt.Println(err)
		return
	}
	peak := result.Column("entropy.peak")
	for i := range result.Len() {
		fmt.Println(result.Statuses[i], peak.Value(i))
	}
	// Output:
	// ok [4]
	// operator_error []
	// ok [24]
}
