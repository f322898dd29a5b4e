package textframes

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/table"
)

// Verdicts applies the rule of the operator neardup to one record at a time, with reference implementations.
type Verdicts struct {
	op        int // index of the operator
	kernel    operator.Operator
	reference *neardup.Reference
}

// NewVerdicts returns Verdicts for the stateful operator in ops, or nil if no operator is stateful. records is the number of
// records in a generation of the states.
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

// Keys returns the keys of each record. It uses all cores, because the reference is slow. Several goroutines may call it.
func (v *Verdicts) Keys(records [][]byte) [][]uint64 {
	keys := make([][]uint64, len(records))
	var next atomic.Int64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(records)); i = next.Add(1) - 1 {
				for k := v.kernel.AppendReference(nil, records[i]); len(k) > 0; k = k[neardup.KeyBytes:] {
					keys[i] = append(keys[i], binary.LittleEndian.Uint64(k))
				}
			}
		})
	}
	running.Wait()
	return keys
}

// Put sets the verdicts on the given records of a message in the table of its results. Messages must come in the order of the stream.
func (v *Verdicts) Put(t *table.Table, records []uint32, sequence uint64, keys [][]uint64) {
	for _, i := range records {
		verdict := v.reference.Apply(neardup.Position{Sequence: sequence, Record: uint64(i)}, keys[i])
		t.PutValue(v.op, int(i), verdict.AppendValue(nil))
	}
}
