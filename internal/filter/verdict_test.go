package filter

import (
	"testing"

	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// TestVerdicts shows the values of the variable neardup, of a duplicate and of another record.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	op, err := operator.Parse("neardup")
	if err != nil {
		t.Fatal(err)
	}
	duplicate := neardup.Verdict{DuplicateOf: neardup.Position{Sequence: 17, Record: 3}, Bands: 12, Also: []neardup.Position{{Sequence: 18, Record: 0}}}
	for _, c := range []struct {
		condition string
		first     bool // whether the condition is true for a record without a hit
		duplicate bool
	}{
		{"neardup.duplicate_of == null", true, false},
		{"neardup.duplicate_of != null", false, true},
		{"neardup.duplicate_of == null || neardup.bands < 13", true, true},
		{"neardup.bands == 12", false, true},
		{"neardup.bands == 0", true, false},
		{"neardup.duplicate_of != null && neardup.duplicate_of.sequence == 17 && neardup.duplicate_of.record == 3", false, true},
		{"size(neardup.also) == 1 && neardup.also[0].sequence == 18", false, true},
		{"neardup.also.all(p, p != neardup.duplicate_of)", true, true},
	} {
		f, err := New(c.condition, []operator.Operator{op}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.condition, err)
			continue
		}
		for _, v := range []struct {
			neardup.Verdict
			want bool
		}{{neardup.Verdict{}, c.first}, {duplicate, c.duplicate}} {
			if keep, _, err := f.Keep(&Row{Values: [][]byte{v.AppendValue(nil)}}, WithState); keep != v.want || err != nil {
				t.Errorf("%s is %t for %+v, %v", c.condition, keep, v.Verdict, err)
			}
		}
	}
}

// TestStages shows which conditions are evaluated before the state decides.
func TestStages(t *testing.T) {
	t.Parallel()
	ops, err := operator.ParseList("crc32c,neardup")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(`record.bytes > 5 && neardup.duplicate_of == null && crc32c != "00000000" && (record.bytes > 8 || neardup.bands > 1)`, ops, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, duplicate := neardup.Verdict{}.AppendValue(nil), neardup.Verdict{DuplicateOf: neardup.Position{Sequence: 1}, Bands: 1}.AppendValue(nil)
	for _, c := range []struct {
		bytes   int
		verdict []byte
		stage   Stage
		failed  int
	}{
		{5, duplicate, WithoutState, 0}, {6, duplicate, WithoutState, -1}, {5, duplicate, WithState, 1}, {6, first, WithState, 3}, {9, first, WithState, -1},
	} {
		keep, failed, err := f.Keep(&Row{Bytes: c.bytes, Values: [][]byte{{1, 0, 0, 0}, c.verdict}}, c.stage)
		if keep != (c.failed < 0) || failed != c.failed || err != nil {
			t.Errorf("%d bytes in stage %d: %t by condition %d, want %d, %v", c.bytes, c.stage, keep, failed, c.failed, err)
		}
	}
}
