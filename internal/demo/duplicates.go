package demo

import (
	"encoding/binary"
	"fmt"

	"millrace/internal/corpus"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/table"
)

// CheckShare returns an error if a share of near-duplicates is out of range.
func CheckShare(share float64) error {
	if !(share >= 0 && share <= 0.95) {
		return fmt.Errorf("--near-duplicates is %v, want 0 to 0.95", share)
	}
	return nil
}

// leastSimilarity is the least similarity of a near-duplicate and its source, about. The operator finds nearly all of them.
const leastSimilarity = 0.9

// nearDuplicates generates the texts of a set, and near-duplicates of earlier texts in place of some of them.
type nearDuplicates struct {
	texts
	copies corpus.NearDuplicates
}

func newNearDuplicates(all texts, seed uint64, share float64) *nearDuplicates {
	return &nearDuplicates{all, corpus.NearDuplicates{Seed: seed, Share: share, Least: leastSimilarity, Text: all.text}}
}

func (d *nearDuplicates) text(dst []byte, n int) []byte { return d.copies.Append(dst, n) }

// verdicts follows the rule of neardup for the records of all messages, in the order of the stream. Each message waits for its turn.
type verdicts struct {
	op        int // index of the operator
	kernel    operator.Operator
	reference *neardup.Reference
}

// newVerdicts returns nil if no operator is stateful. A generation of the states has the given number of records.
func newVerdicts(ops []operator.Operator, records int) *verdicts {
	for i, op := range ops {
		if s, ok := op.(operator.Stateful); ok {
			p, err := neardup.ParseBlock(s.Params(), records)
			if err != nil {
				panic("demo: " + err.Error()) // neardup is the only stateful operator
			}
			return &verdicts{op: i, kernel: s.Kernel(), reference: neardup.NewReference(p)}
		}
	}
	return nil
}

// keys returns the keys of each record.
func (v *verdicts) keys(records [][]byte) [][]uint64 {
	keys := make([][]uint64, len(records))
	for i, r := range records {
		for k := v.kernel.AppendReference(nil, r); len(k) > 0; k = k[neardup.KeyBytes:] {
			keys[i] = append(keys[i], binary.LittleEndian.Uint64(k))
		}
	}
	return keys
}

// put sets the verdicts on the given records of a message in the table of its results. Messages must come in the order of the stream.
func (v *verdicts) put(t *table.Table, records []uint32, sequence uint64, keys [][]uint64) {
	for _, i := range records {
		verdict := v.reference.Apply(neardup.Position{Sequence: sequence, Record: uint64(i)}, keys[i])
		t.PutValue(v.op, int(i), verdict.AppendValue(nil))
	}
}
