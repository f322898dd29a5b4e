package table

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/internal/filter"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/record"
)

// plain implements Fields with records of n bytes.
type plain int

func (p plain) Source(int) []byte    { return make([]byte, p) }
func (p plain) Kept(int, int) []byte { return nil }
func (p plain) IsAnnotated(int) bool { return false }

// duplicateOf returns the value of a duplicate of record 3 of a message.
func duplicateOf(sequence uint64) []byte {
	first, second := neardup.Position{Sequence: sequence, Record: 3}, neardup.Position{Sequence: sequence + 1}
	return neardup.Verdict{DuplicateOf: first, Bands: 12, Also: []neardup.Position{second}}.AppendValue(nil)
}

func TestKeysAndValues(t *testing.T) {
	ops := parseList(t, "crc32c,neardup?bands=3&rows=2&k=4")
	records, _ := someRecords(5, 0)
	kernel := operator.KernelOf(ops[1])
	table := new(Table)
	for range 2 { // in the second iteration, the table contains values and keys of another message
		table.Reset(ops, len(records))
		var want []byte
		for _, i := range []uint32{1, 4} {
			want = kernel.AppendReference(want, records[i])
		}
		for k, column := range columnsOf(operator.Kernels(ops), records) {
			table.Put(k, 0, column)
			table.PutStrings(k, 0, len(records), column, make([]uint32, len(records)+1), 0)
		}
		if got := table.AppendKeys([]byte("x"), 1, []uint32{1, 4}); !bytes.Equal(got, append([]byte("x"), want...)) {
			t.Errorf("keys %x, want %x", got, want)
		}
		if body := string(table.Append(nil, operator.JSON, 2, 3)); !strings.Contains(body, `"neardup":{"duplicate_of":null}`) {
			t.Errorf("a record without a value has %s", body)
		}
		table.PutValue(1, 2, duplicateOf(17))
		if body := string(table.Append(nil, operator.JSON, 2, 3)); !strings.Contains(body,
			`"neardup":{"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[{"sequence":18,"record":0}]}`) {
			t.Errorf("a duplicate has %s", body)
		}
	}
}

// TestBodiesWithValuesAreBounded: MaxBytes and MaxSize include the longest values, and MaxKeys includes the keys.
func TestBodiesWithValuesAreBounded(t *testing.T) {
	ops := parseList(t, "crc32c,neardup?bands=3&rows=2")
	const n = 100
	verdict := neardup.Verdict{DuplicateOf: neardup.Position{Sequence: 1 << 63, Record: 1 << 63}, Bands: 3}
	for i := range uint64(2) {
		verdict.Also = append(verdict.Also, neardup.Position{Sequence: 1<<63 + 1, Record: 1<<63 + i})
	}
	value := verdict.AppendValue(nil)
	strings := operator.StringBytes(ops, n, 0)
	for _, f := range formats {
		table := new(Table)
		table.Reset(ops, n)
		for i := range n {
			table.PutValue(1, i, value)
		}
		if got, limit := len(table.Append(nil, f, 0, n)), MaxBytes(f, ops, n, strings); got > limit {
			t.Errorf("%v: a body of %d bytes, and the maximum is %d", f, got, limit)
		}
		if got, limit := table.Size(), MaxSize(f, ops, n, strings)+MaxKeys(ops, n); got > limit || MaxKeys(ops, n) != 24*n {
			t.Errorf("%v: the table has %d bytes, and the maximum is %d", f, got, limit)
		}
	}
}

// TestChooseInTwoSteps: Ask omits a record that a stateless condition leaves out. The other conditions can use the values.
func TestChooseInTwoSteps(t *testing.T) {
	ops := parseList(t, "crc32c,neardup")
	for expression, want := range map[string]struct {
		asked, chosen []uint32
		leftOut       []int
		failed        map[int]record.Status
	}{
		"": {asked: []uint32{0, 1, 3, 4}, chosen: []uint32{0, 1, 2, 3, 4}, leftOut: []int{0}},
		"neardup.duplicate_of == null": {
			asked: []uint32{0, 1, 3, 4}, chosen: []uint32{1, 4}, leftOut: []int{2, 1},
		},
		"neardup.bands == 0 && record.number != 4 && record.number != 0": {
			asked: []uint32{1, 3}, chosen: []uint32{1}, leftOut: []int{1, 1, 1, 1},
		},
		"neardup.duplicate_of.sequence > 10": { // can't be evaluated for records 1 and 4
			asked: []uint32{0, 1, 3, 4}, chosen: []uint32{0, 3}, leftOut: []int{0, 1},
			failed: map[int]record.Status{1: record.FilterError, 4: record.FilterError},
		},
		"neardup.bands == 12 && 10 / (record.number - 3) < 100": { // can't be evaluated for record 3, which Ask omits
			asked: []uint32{0, 1, 4}, chosen: []uint32{0}, leftOut: []int{2, 0, 1},
			failed: map[int]record.Status{3: record.FilterError},
		},
		"record.number > 3": {asked: []uint32{4}, chosen: []uint32{4}, leftOut: []int{3, 1}},
	} {
		table := new(Table)
		table.Reset(ops, 6)
		table.Keep(nil, plain(9))
		table.SetStatus(2, record.Null)
		table.SetStatus(5, record.DeviceFault)
		var f *filter.Filter
		if expression != "" {
			var err error
			if f, err = filter.New(expression, ops, nil); err != nil {
				t.Fatal(err)
			}
		}
		leftOut := make([]int, len(want.leftOut))
		asked := table.Ask(f, nil, leftOut)
		for _, i := range asked {
			if i == 0 || i == 3 {
				table.PutValue(1, int(i), duplicateOf(17))
			}
		}
		memory := slices.Clone(asked)
		chosen := table.Choose(f, memory, memory[:0], leftOut)
		if !slices.Equal(asked, want.asked) || !slices.Equal(chosen, want.chosen) || !slices.Equal(leftOut, want.leftOut) {
			t.Errorf("%s: asked %v, chosen %v, left out %v; want %+v", expression, asked, chosen, leftOut, want)
		}
		failed := map[int]record.Status{}
		for i := range table.Records() {
			if s := table.Status(i); s.Failed() && i != 5 {
				failed[i] = s
			}
		}
		if fmt.Sprint(failed) != fmt.Sprint(want.failed) {
			t.Errorf("%s: the filter fails on %v, want %v", expression, failed, want.failed)
		}
	}
}
