package arrow_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"millrace/client"
	clientarrow "millrace/client/arrow"
	"millrace/internal/arrowipc"
	"millrace/internal/record"
)

// verdicts returns a result of neardup, as the worker encodes it. It has a record without duplicates, a failed record and a duplicate.
func verdicts() []byte {
	column := arrowipc.Column{Name: "neardup", Spec: "neardup?bands=20", Kind: arrowipc.Struct, Width: 24, Fields: []arrowipc.Field{
		{Name: "duplicate_of", Type: arrowipc.PositionType}, {Name: "bands", Type: arrowipc.Uint32Type, At: 16},
		{Name: "also", Type: arrowipc.PositionsType, At: 20},
	}}
	values := make([]byte, 3*column.Width)
	for at, n := range map[int]byte{48: 17, 56: 3, 64: 12, 68: 32} {
		values[at] = n
	}
	var also []byte
	for _, n := range []uint64{18, 0, 18, 5} {
		also = binary.LittleEndian.AppendUint64(also, n)
	}
	rows := arrowipc.Rows{
		Lengths: []uint64{3, 0, 9}, Statuses: []record.Status{record.OK, record.OperatorError, record.OK}, Values: [][]byte{values},
		Strings: also, Spans: [][]arrowipc.Span{{{}, {}, {From: 0, To: len(also)}}},
	}
	return arrowipc.NewEncoder([]arrowipc.Column{column}).Append(nil, rows)
}

func TestNeardup(t *testing.T) {
	r, err := clientarrow.Decode(verdicts())
	if err != nil {
		t.Fatal(err)
	}
	want := client.Neardup{
		DuplicateOf: &client.Position{Sequence: 17, Record: 3}, Bands: 12, Also: []client.Position{{Sequence: 18}, {Sequence: 18, Record: 5}},
	}
	if got, ok := r.Neardup(0); !ok || !reflect.DeepEqual(got, client.Neardup{}) {
		t.Errorf("a record without duplicates is %+v, %t", got, ok)
	}
	if got, ok := r.Neardup(1); ok {
		t.Errorf("the failed record is %+v", got)
	}
	if got, ok := r.Neardup(2); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("a duplicate is %+v, %t, want %+v", got, ok, want)
	}
	if len(r.Texts) > 0 {
		t.Errorf("positions are byte strings: %v", r.Texts)
	}
	other, err := clientarrow.Decode(fields())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := other.Neardup(0); ok {
		t.Errorf("a result without neardup has %+v", got)
	}
}

// TestPositionsThatLieCostLittle replaces the number at each position of a result.
func TestPositionsThatLieCostLittle(t *testing.T) {
	whole := verdicts()
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
