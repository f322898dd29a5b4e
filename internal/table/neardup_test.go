package table

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// TestClientsReadVerdicts: the clients read the same values from each format.
func TestClientsReadVerdicts(t *testing.T) {
	ops := parseList(t, "crc32c,neardup")
	table := new(Table)
	table.Reset(ops, 4)
	table.SetStatus(1, record.DeviceFault)
	table.PutValue(1, 2, duplicateOf(17))
	want := []*client.Neardup{{}, nil, {DuplicateOf: &client.Position{Sequence: 17, Record: 3}, Bands: 12, Also: []client.Position{{Sequence: 18}}}, {}}

	check := func(f operator.Format, i int, got client.Neardup, ok bool) {
		if got.Also = slices.Clip(got.Also); len(got.Also) == 0 {
			got.Also = nil
		}
		if ok != (want[i] != nil) || ok && !reflect.DeepEqual(got, *want[i]) {
			t.Errorf("%v: record %d is %+v, %t, want %+v", f, i, got, ok, want[i])
		}
	}
	i := 0
	for line, err := range client.Lines(table.Append(nil, operator.JSON, 0, 4)) {
		var got client.Neardup
		value, ok := line.Values["neardup"]
		if ok {
			err = json.Unmarshal(value, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		check(operator.JSON, i, got, ok)
		i++
	}
	binary, err := client.Decode(table.Append(nil, operator.Binary, 0, 4))
	if err != nil {
		t.Fatal(err)
	}
	columns, err := arrow.Decode(table.Append(nil, operator.Arrow, 0, 4))
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		got, ok := binary.Record(i).Neardup(1)
		check(operator.Binary, i, got, ok)
		got, ok = columns.Neardup(i)
		check(operator.Arrow, i, got, ok)
	}
	if _, ok := binary.Record(0).Neardup(0); ok {
		t.Error("crc32c has a value of neardup")
	}
}
