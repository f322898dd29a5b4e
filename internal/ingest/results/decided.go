package results

import (
	"millrace/internal/filter"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// A worker with other settings, such as another filter, may have processed an earlier delivery of an input. Its decisions stay if it
// died after it stored dead letters of records, or before it acknowledged the input (adr/0053). Otherwise, a record could have a dead
// letter and also be in the result.

// adoptLetters gives the records of d's frame the statuses of their stored dead letters. before means that the state of a stateful
// operator hasn't decided yet. Then adoptLetters adopts only statuses that a record can get before the decision.
func (t *task) adoptLetters(d *inflight.Delivery, before bool) {
	if d.First || len(t.s.partial) == 0 || d.Frame.Fault() != nil {
		return
	}
	for i := range d.Frame.Records() {
		status, ok := record.Parse(t.s.partial[RecordID(d, i)])
		if late := status == record.TooLarge || status == record.FilterError; ok && status.Failed() && !(before && late) {
			d.Frame.Mark(i, status)
		}
	}
}

// recompute computes the keys of records that failed only after the result of their message was stored. Either the device or an operator
// failed now, or the message isn't computed because it may break the device. recompute uses the operators' references. It needs a chain
// of dead letters, because the chain shows which records had failed before.
//
// A user-written operator may have no reference on a GPU, and its reference could also fail on such a record. If a condition before the
// decision needs this operator's result, recompute can't know whether the state had the record. It then leaves the record out.
func (t *task) recompute(d *inflight.Delivery) {
	s, f := t.state(), d.Frame
	if !d.Done || f.Fault() != nil || s.letters == nil {
		return
	}
	needed, own := t.neededBefore()
	whole := s.letters.Has(store.Letter{Input: position(d), Record: store.WholeMessage})
	for i := range f.Records() {
		switch status := f.Table.Status(i); {
		case status != record.DeviceFault && (status != record.OperatorError || whole):
			continue // an operator's errors have no dead letters if the whole message has one
		case s.letters.Has(store.Letter{Input: position(d), Record: i}):
			continue
		}
		if own != "" {
			t.o.Log.Warn("the state of a partition lacks a record: it failed only after its result was stored, and a condition of the filter needs an operator that can't be "+
				"computed again; later near-duplicates of the record are kept", "sequence", d.Sequence, "record", i, "operator", own)
			continue
		}
		f.Mark(i, record.OK)
		f.Table.Put(s.op, i, operator.KernelOf(t.o.Operators[s.op]).AppendReference(nil, f.Record(i)))
		for _, k := range needed {
			f.Table.PutValue(k, i, t.o.Operators[k].AppendReference(nil, f.Record(i)))
		}
	}
}

// neededBefore returns the indices of the operators whose results decide whether the state gets a record. own is the name of a
// user-written operator among them, or "".
func (t *task) neededBefore() (needed []int, own string) {
	if t.o.Filter == nil {
		return nil, ""
	}
	for k, op := range t.o.Operators {
		if !t.o.Filter.Needs(filter.Stateless, op.Name()) {
			continue
		}
		needed = append(needed, k)
		if _, ok := op.(operator.Faulty); ok {
			own = op.Name()
		}
	}
	return needed, own
}
