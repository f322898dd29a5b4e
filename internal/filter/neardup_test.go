package filter

import (
	"strings"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// verdict returns the value of a record with the given number of hits. Each label is record 3 of the message with one of the
// given sequences.
func verdict(hits int, sequences ...uint64) []byte {
	v := neardup.Verdict{Bands: hits}
	for i, sequence := range sequences {
		p := neardup.Position{Sequence: sequence, Record: 3}
		if i == 0 {
			v.DuplicateOf = p
		} else {
			v.Also = append(v.Also, p)
		}
	}
	return v.AppendValue(nil)
}

func neardupFilter(t *testing.T, expression string) *Filter {
	t.Helper()
	ops, err := operator.ParseList("crc32c,neardup")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(expression, ops, nil)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return f
}

func TestFilterOnVerdicts(t *testing.T) {
	none, one, three := verdict(0), verdict(12, 17), verdict(7, 17, 20, 99)
	for expression, wants := range map[string][3]bool{ // results for no, one and three labels
		"neardup.duplicate_of == null": {true, false, false},
		"neardup.duplicate_of != null ? neardup.duplicate_of.sequence < 100 : false": {false, true, true},
		"neardup.duplicate_of == null || neardup.duplicate_of.sequence + 1 == 18":    {true, true, true},
		"neardup.duplicate_of == null || neardup.duplicate_of.record > 3":            {true, false, false},
		"neardup.bands >= 5":                       {false, true, true},
		"neardup.bands == 0":                       {true, false, false},
		"size(neardup.also) == 0":                  {true, true, false},
		"neardup.also.exists(p, p.sequence == 99)": {false, false, true},
		"size(neardup.also) > 1 ? neardup.also[0].sequence == 20 : false":              {false, false, true},
		"size(neardup.also) > 1 ? neardup.also[0] != neardup.also[1] : false":          {false, false, true},
		"neardup.duplicate_of in neardup.also":                                         {false, false, false},
		"(neardup.duplicate_of != null || record.bytes > 5) && neardup.bands % 2 == 0": {false, true, false},
		"neardup.duplicate_of != null && neardup.duplicate_of.sequence < 100":          {false, true, true},
	} {
		f := neardupFilter(t, expression)
		for i, value := range [][]byte{none, one, three} {
			keep, _, err := f.Keep(Stateful, &Row{Bytes: 5, Values: [][]byte{{1, 2, 3, 4}, value}})
			if keep != wants[i] || err != nil {
				t.Errorf("%s: verdict %d: keep is %t, error %v", expression, i, keep, err)
			}
		}
	}
}

func TestMemberOfNullIsAnError(t *testing.T) {
	f := neardupFilter(t, "neardup.duplicate_of.sequence < 100")
	keep, _, err := f.Keep(Stateful, &Row{Values: [][]byte{nil, verdict(0)}})
	if keep || err == nil || !strings.Contains(err.Error(), "compare it with null first") {
		t.Errorf("a record without duplicates: keep is %t, error %v", keep, err)
	}
}

func TestMistakesWithVerdicts(t *testing.T) {
	ops, err := operator.ParseList("neardup")
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"neardup.keys == 1":                    "undefined field 'keys'",
		"neardup.duplicate_of == 5":            "no matching overload",
		"neardup.duplicate_of.number == 5":     "undefined field 'number'",
		"neardup.bands":                        "write a condition",
		"size(neardup.also[0].sequence) == 1":  "no matching overload",
		"neardup.duplicate_of.sequence == '1'": "no matching overload",
	} {
		if _, err := New(expression, ops, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", expression, err, want)
		}
	}
}

// TestStages: conditions without a stateful operator are evaluated first, and need no values of stateful operators.
func TestStages(t *testing.T) {
	f := neardupFilter(t, "neardup.bands < 3 && record.bytes > 5 && (record.bytes > 7 || neardup.bands == 1) && crc32c != '00000000'")
	if names := f.Conditions(); len(names) != 4 {
		t.Fatalf("the conditions are %q, want 4", names)
	}
	for _, c := range []struct {
		stage  Stage
		row    Row
		keep   bool
		failed int
	}{
		{Stateless, Row{Bytes: 6, Values: [][]byte{{1, 2, 3, 4}, nil}}, true, -1},
		{Stateless, Row{Bytes: 5, Values: [][]byte{{1, 2, 3, 4}, nil}}, false, 1},
		{Stateless, Row{Bytes: 6, Values: [][]byte{{0, 0, 0, 0}, nil}}, false, 3},
		{Stateful, Row{Bytes: 6, Values: [][]byte{nil, verdict(1, 17)}}, true, -1},
		{Stateful, Row{Bytes: 6, Values: [][]byte{nil, verdict(2, 17)}}, false, 2},
		{Stateful, Row{Bytes: 8, Values: [][]byte{nil, verdict(3, 17)}}, false, 0},
	} {
		keep, failed, err := f.Keep(c.stage, &c.row)
		if keep != c.keep || failed != c.failed || err != nil {
			t.Errorf("stage %d of %+v: %t, condition %d, error %v; want %t, condition %d", c.stage, c.row, keep, failed, err, c.keep, c.failed)
		}
	}
}
