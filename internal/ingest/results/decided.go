package results

import (
	"millrace/internal/filter"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// An earlier delivery of an input may have been processed with other settings, for example with another filter. If that worker died
// after it had stored dead letters of records, or before it acknowledged the input, its decisions stay (adr/0053). Otherwise, a record
// could have a dead letter and also be in the result.

// adoptLetters gives the records of d's frame the statuses of their stored dead letters. Before the state of a stateful operator decides,
// it adopts only statuses that records have before that.
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

// recompute gives the records of a message with a stored result their keys, if they failed only now: the device or an operator broke down
// after the result was stored, or the message is no longer computed because it may break the device. It uses the operators' references. A
// record that failed before has a dead letter, which only a chain of dead letters proves.
//
// A user's operator has no reference that could be trusted with such a record, and on a GPU maybe none. If a condition needs its result before
// the state decides, nobody knows whether the state had the record, and recompute leaves it out.
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

// neededBefore returns the indices of the operators whose results decide whether the state gets a record. own is the name of a user's
// operator among them, or "".
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
