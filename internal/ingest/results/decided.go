package results

import (
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
func (t *task) recompute(d *inflight.Delivery) {
	s, f := t.state(), d.Frame
	if !d.Done || f.Fault() != nil || s.letters == nil {
		return
	}
	whole := s.letters.Has(store.Letter{Input: position(d), Record: store.WholeMessage})
	for i := range f.Records() {
		switch status := f.Table.Status(i); {
		case status != record.DeviceFault && (status != record.OperatorError || whole):
			continue // an operator's errors have no dead letters if the whole message has one
		case s.letters.Has(store.Letter{Input: position(d), Record: i}):
			continue
		}
		f.Mark(i, record.OK)
		for k, op := range t.o.Operators {
			switch value := operator.KernelOf(op); {
			case k == s.op:
				f.Table.Put(k, i, value.AppendReference(nil, f.Record(i)))
			case t.o.Filter != nil: // its conditions decide whether the state gets the record
				f.Table.PutValue(k, i, value.AppendReference(nil, f.Record(i)))
			}
		}
	}
}
