package neardup

import (
	"testing"
)

// example is a record with three bands of one value, at record 0 of its message. The message's sequence is one more than the record's index in the
// list of examples. The verdict names sequences.
type example struct {
	signature   [3]uint32
	duplicateOf uint64
	bands       int
	also        []uint64
}

// examples have verdicts that were derived from the rule by hand.
var examples = []struct {
	name    string
	size    int // records per generation
	records []example
}{
	{"the first of a group is no duplicate", 9, []example{
		{signature: [3]uint32{1, 2, 3}},
		{signature: [3]uint32{1, 2, 3}, duplicateOf: 1, bands: 3},
		{signature: [3]uint32{4, 2, 5}, duplicateOf: 1, bands: 1},
		{signature: [3]uint32{2, 1, 9}}, // the same values in other bands
	}},
	{"a key that a duplicate inserts has the duplicate's label", 9, []example{
		{signature: [3]uint32{1, 2, 3}},
		{signature: [3]uint32{1, 4, 5}, duplicateOf: 1, bands: 1},
		{signature: [3]uint32{6, 4, 7}, duplicateOf: 1, bands: 1},
	}},
	{"a record that joins two groups names both, and changes neither", 9, []example{
		{signature: [3]uint32{1, 1, 1}},
		{signature: [3]uint32{2, 2, 2}},
		{signature: [3]uint32{3, 3, 3}},
		{signature: [3]uint32{3, 1, 2}, duplicateOf: 1, bands: 3, also: []uint64{2, 3}},
		{signature: [3]uint32{4, 4, 2}, duplicateOf: 2, bands: 1},
		{signature: [3]uint32{3, 4, 5}, duplicateOf: 2, bands: 2, also: []uint64{3}},
	}},
	{"a record finds the last generation, but not the one before", 2, []example{
		{signature: [3]uint32{1, 2, 3}},
		{signature: [3]uint32{4, 5, 6}},
		{signature: [3]uint32{7, 8, 3}, duplicateOf: 1, bands: 1},
		{signature: [3]uint32{9, 9, 9}},
		{signature: [3]uint32{1, 2, 10}}, // generation 0 was dropped when generation 2 began, and no record had copied these keys
		{signature: [3]uint32{11, 8, 3}, duplicateOf: 1, bands: 2},
	}},
	{"copied keys keep their labels", 3, []example{
		{signature: [3]uint32{1, 1, 1}},
		{signature: [3]uint32{2, 2, 2}},
		{signature: [3]uint32{3, 3, 3}},
		{signature: [3]uint32{1, 2, 4}, duplicateOf: 1, bands: 2, also: []uint64{2}},
		{signature: [3]uint32{5, 2, 5}, duplicateOf: 2, bands: 1},
		{signature: [3]uint32{6, 6, 4}, duplicateOf: 1, bands: 1},
		{signature: [3]uint32{7, 2, 7}, duplicateOf: 2, bands: 1}, // generation 2
	}},
	{"copied keys get the record's label if the generation has carried its number of labels", 2, []example{
		{signature: [3]uint32{1, 1, 1}},
		{signature: [3]uint32{2, 2, 2}},
		{signature: [3]uint32{1, 2, 3}, duplicateOf: 1, bands: 2, also: []uint64{2}}, // carries labels 1 and 2 over
		{signature: [3]uint32{4, 1, 2}, duplicateOf: 1, bands: 2, also: []uint64{2}}, // finds both labels in the old generation, and carries neither over
		{signature: [3]uint32{5, 5, 2}, duplicateOf: 1, bands: 1},
		{signature: [3]uint32{5, 2, 5}, duplicateOf: 1, bands: 2, also: []uint64{2}},
	}},
}

func TestReferenceExamples(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			p := Parameters{Bands: 3, Rows: 1, Records: e.size}
			r := NewReference(p)
			for i, record := range e.records {
				want := Verdict{DuplicateOf: Position{Sequence: record.duplicateOf}, Bands: record.bands}
				for _, sequence := range record.also {
					want.Also = append(want.Also, Position{Sequence: sequence})
				}
				got := r.Apply(Position{Sequence: uint64(i) + 1}, p.AppendKeys(nil, record.signature[:]))
				sameVerdicts(t, []Verdict{got}, []Verdict{want}, i)
			}
		})
	}
}
