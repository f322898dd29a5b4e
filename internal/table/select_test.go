package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/operator"
)

// TestSelections checks the records, numbers and results of a selection. The parts must use the numbers in the message.
func TestSelections(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=3&hashes=5")
	whole := someTable(ops, 300, 0)
	for _, chosen := range [][]uint32{{0, 1, 2, 250}, {299}, {7, 9, 100, 101, 102, 103, 200}, {}} {
		s := whole.Select(chosen)
		if s.Records() != len(chosen) {
			t.Fatalf("%d records, want %d", s.Records(), len(chosen))
		}
		for at, i := range chosen {
			for op := range ops {
				if !bytes.Equal(s.values(at)[op], whole.values(int(i))[op]) || s.Number(at) != int(i) {
					t.Errorf("record %d of %v has another result, or the number %d", i, chosen, s.Number(at))
				}
			}
		}
		_, parts, err := s.Parts(nil, operator.JSON, 400, nil)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []uint32
		for n, p := range parts {
			for line := range bytes.Lines(p.Body) {
				var result struct{ Record, Bytes *uint32 }
				if err := json.Unmarshal(line, &result); err != nil || result.Record == nil || result.Bytes == nil {
					t.Fatalf("%s: %v", line, err)
				}
				numbers = append(numbers, *result.Record)
			}
			if n == 0 && p.First != 0 || n > 0 && p.First != int(chosen[p.From]) {
				t.Errorf("part %d of %v starts with record %d", n, chosen, p.First)
			}
		}
		if !slices.Equal(numbers, chosen) {
			t.Errorf("the result has the records %v, want %v", numbers, chosen)
		}
	}
}

// TestASelectionInBinary checks that a client reads the numbers of the records.
func TestASelectionInBinary(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=3&hashes=5")
	whole := someTable(ops, 300, 0)
	chosen := []uint32{3, 4, 200, 299}
	r, err := client.Decode(whole.Select(chosen).Append(nil, operator.Binary, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	var numbers []uint32
	for number, record := range r.Records() {
		numbers = append(numbers, uint32(number))
		if got := record.Value(1); !bytes.Equal(got, whole.values(number)[1]) {
			t.Errorf("record %d has the value %x", number, got)
		}
	}
	if !slices.Equal(numbers, chosen[1:]) || r.FirstRecord != 4 || r.Version != 3 {
		t.Errorf("version %d has the records %v from %d on, want %v", r.Version, numbers, r.FirstRecord, chosen[1:])
	}
}

// TestARecordTooLargeHasItsNumber checks that the error about a record contains its number in the message.
func TestARecordTooLargeHasItsNumber(t *testing.T) {
	s := someTable(parseList(t, "minhash?k=3&hashes=500"), 10, 0).Select([]uint32{4, 8})
	var single *RecordTooLargeError
	if _, _, err := s.Parts(nil, operator.JSON, 100, nil); !errors.As(err, &single) || single.Record != 4 {
		t.Errorf("%v, want an error about record 4", err)
	}
}

// TestASelectionInArrow checks that a client reads the numbers of the records.
func TestASelectionInArrow(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=3&hashes=5")
	whole := someTable(ops, 300, 0)
	chosen := []uint32{3, 4, 200, 299}
	r, err := arrow.Decode(whole.Select(chosen).Append(nil, operator.Arrow, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range chosen[1:] {
		if r.Numbers[i] != want {
			t.Errorf("record %d has the number %d, want %d", i, r.Numbers[i], want)
		}
		if got := r.Column("minhash").Bytes(i); !bytes.Equal(got, whole.values(int(want))[1]) {
			t.Errorf("record %d has the value %x", want, got)
		}
	}
}

// values returns the values of record i.
func (t *Table) values(i int) [][]byte {
	t.collect(i)
	return t.results
}
