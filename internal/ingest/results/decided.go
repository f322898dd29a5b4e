package results

import (
	"context"
	"slices"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// An earlier delivery of an input may have been processed with other settings, for example with another filter. If that worker died
// after it had stored dead letters of records, or before it acknowledged the input, its decisions stay (adr/0053). Otherwise, a record
// could have a dead letter and also be in the result.

// settleDecided looks up the deliveries of which something may be stored. It settles those with a stored result, before any of their
// dead letters are stored. The state of a stateful operator still decides on their records.
func (t *task) settleDecided(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		known, err := t.lookUp(ctx, t.mayBeDecided)
		if err == nil && t.state() == nil {
			t.settle(ctx, known, slices.Repeat([]store.Answer{{Duplicate: true}}, len(known)))
			return nil
		}
		if err == nil {
			for _, i := range known {
				t.b.Items[i].Done = true
			}
			return nil
		}
		if err := t.awaitNext(ctx, attempt, err); err != nil {
			return err
		}
	}
}

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

// mayBeDecided implements protocol. The server drops a result with a stored id, but not the dead letters of its records.
func (window) mayBeDecided(d *inflight.Delivery) bool { return d.Frame != nil && !d.First }

// mayBeDecided implements protocol. The inputs whose results are stored are settled already.
func (p *chain) mayBeDecided(d *inflight.Delivery) bool {
	return d.Frame != nil && !d.First && (p.letters == nil || p.earlier.Lists(position(d)))
}
