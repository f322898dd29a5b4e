package neardup

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
)

var verdicts = []Verdict{
	{},
	{DuplicateOf: Position{Sequence: 17, Record: 3}, Bands: 12},
	{DuplicateOf: Position{Sequence: 17, Record: 3}, Bands: 12, Also: []Position{{Sequence: 18, Record: 0}}},
	{DuplicateOf: Position{Sequence: 1, Record: math.MaxUint64}, Bands: 64, Also: []Position{{Sequence: 2, Record: 0}, {Sequence: 2, Record: 7}, {Sequence: math.MaxUint64, Record: math.MaxUint64}}},
}

func TestValues(t *testing.T) {
	for i, want := range []string{
		"0000000000000000" + "0000000000000000" + "00000000" + "00000000",
		"1100000000000000" + "0300000000000000" + "0c000000" + "00000000",
		"1100000000000000" + "0300000000000000" + "0c000000" + "10000000" + "1200000000000000" + "0000000000000000",
	} {
		if got := hex.EncodeToString(verdicts[i].AppendValue(nil)); got != want {
			t.Errorf("%+v: %s, want %s", verdicts[i], got, want)
		}
	}
	for _, v := range verdicts {
		if got, ok := ReadValue(v.AppendValue(nil)); !ok || !reflect.DeepEqual(got, v) {
			t.Errorf("%+v is read as %+v, %t", v, got, ok)
		}
	}
}

func TestJSONOfVerdicts(t *testing.T) {
	for i, want := range []string{
		`{"duplicate_of":null}`,
		`{"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[]}`,
		`{"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[{"sequence":18,"record":0}]}`,
	} {
		if got := string(AppendJSON(nil, verdicts[i].AppendValue(nil))); got != want {
			t.Errorf("%+v: %s, want %s", verdicts[i], got, want)
		}
	}
	longest := Verdict{DuplicateOf: Position{Sequence: math.MaxUint64, Record: math.MaxUint64}, Bands: MaxBands}
	for range MaxBands - 1 {
		longest.Also = append(longest.Also, Position{Sequence: math.MaxUint64, Record: math.MaxUint64})
	}
	for _, v := range append(verdicts, longest) {
		text := AppendJSON(nil, v.AppendValue(nil))
		if limit := MaxJSON(1 + len(v.Also)); !json.Valid(text) || len(text) > limit {
			t.Errorf("%s: %d bytes, and the maximum is %d", text, len(text), limit)
		}
	}
}

func TestReadValueRefusesContradictions(t *testing.T) {
	change := func(v Verdict, edit func(value []byte) []byte) []byte { return edit(v.AppendValue(nil)) }
	duplicate := verdicts[2]
	for name, value := range map[string][]byte{
		"nothing":               nil,
		"a byte is missing":     change(duplicate, func(b []byte) []byte { return b[:len(b)-1] }),
		"a byte too many":       change(duplicate, func(b []byte) []byte { return append(b, 0) }),
		"half a position":       change(duplicate, func(b []byte) []byte { b[alsoBytesAt] = 8; return b[:len(b)-8] }),
		"hits, and no document": change(verdicts[0], func(b []byte) []byte { b[bandsAt] = 1; return b }),
		"a document, no hits":   change(duplicate, func(b []byte) []byte { b[bandsAt] = 0; return b }),
		"a record, no sequence": change(verdicts[0], func(b []byte) []byte { b[8] = 1; return b }),
		"too many bands":        change(duplicate, func(b []byte) []byte { b[bandsAt] = MaxBands + 1; return b }),
		"more labels than hits": change(duplicate, func(b []byte) []byte { b[bandsAt] = 1; return b }),
		"labels in no order": change(duplicate, func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[ValueBytes:], 17)
			return b
		}),
	} {
		if v, ok := ReadValue(value); ok {
			t.Errorf("%s: %x is read as %+v", name, value, v)
		}
	}
}

// FuzzReadValue: AppendValue writes the same bytes for every value that ReadValue accepts.
func FuzzReadValue(f *testing.F) {
	for _, v := range verdicts {
		f.Add(v.AppendValue(nil))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if v, ok := ReadValue(value); ok && !slices.Equal(v.AppendValue(nil), value) {
			t.Errorf("%x is read as %+v, whose value is %x", value, v, v.AppendValue(nil))
		}
	})
}
