package streams

import (
	"testing"

	"millrace/internal/operator"
)

// moody is an operator. It refuses row i if refusals[i] is a text. The byte string of row i is too long if overlong[i]
// is a text.
type moody struct {
	operator.Operator
	refusals, overlong []string
}

func (m moody) Refusal(_ []byte, _, row int) string           { return m.refusals[row] }
func (m moody) Overlong(_ []byte, _ []uint32, row int) string { return m.overlong[row] }
func (m moody) FailedBatch(_ []byte, _ int) string            { return "" }
func (m moody) Fault(string) string                           { return "" }

// TestOutcomeTellsRefusalsApart covers records of refused rows, which are all zeros. A probe must detect a different or missing reason.
func TestOutcomeTellsRefusalsApart(t *testing.T) {
	op, err := operator.Parse("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	m := moody{op, []string{"", "the record is empty", "the operator failed on the record", ""}, []string{"", "", "", "text is too long"}}
	results, offsets := make([]byte, 4*op.Stride()), []uint32{0, 1, 2, 3, 4}
	var scratch []byte
	seen := map[string]int{}
	for row := range 4 {
		seen[string(outcome(m, results, offsets, row, &scratch))] = row
	}
	if len(seen) != 4 {
		t.Errorf("four outcomes with the same record of zeros look like %d: %v", len(seen), seen)
	}
	if got := outcome(op, results, offsets, 1, &scratch); len(got) != op.Stride() {
		t.Errorf("an operator that refuses nothing has the outcome %q", got)
	}
}
