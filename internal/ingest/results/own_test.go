package results

import (
	"fmt"
	"strings"
	"testing"

	"millrace/internal/filter"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// ownOperator is a user-written operator. On a GPU, it may have no library for the CPU.
type ownOperator struct {
	operator.Declared
	hasLibrary bool
}

func (o *ownOperator) AppendReference(dst, payload []byte) []byte {
	if !o.hasLibrary {
		panic("the operator has no library for the CPU")
	}
	return o.Declared.AppendReference(dst, payload)
}

func (*ownOperator) Refusal([]byte, int, int) string       { return "" }
func (*ownOperator) FailedBatch([]byte, int) string        { return "" }
func (*ownOperator) Overlong([]byte, []uint32, int) string { return "" }
func (*ownOperator) Fault(string) string                   { return "" }

var _ operator.Faulty = (*ownOperator)(nil)

// TestOwnOperatorsAreNotComputedAgain has an input whose result is stored, but not its marker. One record fails only now. The worker computes
// the record's keys again, but no user-written operator, because the record may break the operator. If a condition needs the operator's value
// before the state decides, the state doesn't get the record, and the worker logs a warning.
func TestOwnOperatorsAreNotComputedAgain(t *testing.T) {
	eachStateRig(t, func(t *testing.T, r *stateRig) {
		own := &ownOperator{Declared: r.w.o.Operators[0].(operator.Declared)}
		r.w.o.Operators[0] = own
		for partition, c := range []struct {
			condition string
			failed    []int
		}{
			{"record.bytes > 0 && (neardup.bands >= 0 || crc32c != '')", nil},
			{"crc32c != ''", []int{1}},
		} {
			own.hasLibrary = true
			r.w.o.Filter = natstest.Must(filter.New(c.condition, r.w.o.Operators, nil))(t)
			inputs := [][][]byte{similar(0, 4), similar(0, 8)}
			r.decide(partition, 1, inputs[0], c.failed...)
			want := r.decide(partition, 2, inputs[1])
			lease, _ := r.takeOver(partition, "an owner")
			d, next := r.frameOf(1, inputs[0]), r.frameOf(2, inputs[1])
			d.Done = true
			d.Frame.Mark(1, record.DeviceFault)
			own.hasLibrary = false
			b, from := &inflight.Batch{}, r.Stream("RESULTS").CachedInfo().State.LastSeq
			b.Add(d)
			natstest.OK(t, lease.Store(r.Ctx(), b, new(Buffers), noSink{}))
			natstest.OK(t, r.store(lease, next))
			got := r.result(from, 2)
			for i := range inputs[1] { // with a filter, results have the numbers of records
				got = strings.Replace(got, fmt.Sprintf(`{"record":%d,"bytes"`, i), `{"bytes"`, 1)
			}
			if got != want {
				t.Errorf("%s: the next result is wrong:\n%s", c.condition, differences(got, want))
			}
			if warned := r.Log.Has("the state of a partition lacks a record"); warned != (c.failed != nil) {
				t.Errorf("%s: the worker warns: %t", c.condition, warned)
			}
		}
	})
}
