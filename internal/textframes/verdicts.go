package textframes

import (
	"encoding/binary"

	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/table"
)

// Verdicts follows the rule of the operator neardup record by record, with reference implementations.
type Verdicts struct {
	op        int // index of the operator
	kernel    operator.Operator
	reference *neardup.Reference
}

// NewVerdicts returns nil if no operator is stateful. records is the number of records in a generation of the states.
func NewVerdicts(ops []operator.Operator, records int) *Verdicts {
	for i, op := range ops {
		if s, ok := op.(operator.Stateful); ok {
			p, err := neardup.ParseBlock(s.Params(), records)
			if err != nil {
				panic("textframes: " + err.Error()) // neardup is the only stateful operator
			}
			return &Verdicts{op: i, kernel: s.Kernel(), reference: neardup.NewReference(p)}
		}
	}
	return nil
}

// Keys returns the keys of each record. Several goroutines may call it.
func (v *Verdicts) Keys(records [][]byte) [][]uint64 {
	keys := make([][]uint64, len(records))
	for i, r := range records {
		for k := v.kernel.AppendReference(nil, r); len(k) > 0; k = k[neardup.KeyBytes:] {
			keys[i] = append(keys[i], binary.LittleEndian.Uint64(k))
		}
	}
	return keys
}

// Put sets the verdicts on the given records of a message in the table of its results. Messages must come in the order of the stream.
func (v *Verdicts) Put(t *table.Table, records []uint32, sequence uint64, keys [][]uint64) {
	for _, i := range records {
		verdict := v.reference.Apply(neardup.Position{Sequence: sequence, Record: uint64(i)}, keys[i])
		t.PutValue(v.op, int(i), verdict.AppendValue(nil))
	}
}
