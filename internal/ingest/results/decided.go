package results

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
)

// An earlier delivery of an input may have been processed with other settings, for example with another filter. If that worker died
// after it had stored dead letters of records, or before it acknowledged the input, its decisions stay (adr/0053). Otherwise, a record
// could have a dead letter and also be in the result.

// settleDecided looks up the deliveries of which something may be stored. It settles those with a stored result, before any of their
// dead letters are stored.
func (t *task) settleDecided(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := t.lookUp(ctx, t.mayBeDecided)
		if err == nil {
			return nil
		}
		if err := t.awaitNext(ctx, attempt, err); err != nil {
			return err
		}
	}
}

// adoptLetters gives the records of d's frame the statuses of their stored dead letters.
func (t *task) adoptLetters(d *inflight.Delivery) {
	if d.First || len(t.s.partial) == 0 || d.Frame.Fault() != nil {
		return
	}
	for i := range d.Frame.Records() {
		if status, ok := record.Parse(t.s.partial[RecordID(d, i)]); ok && status.Failed() {
			d.Frame.Mark(i, status)
		}
	}
}

// mayBeDecided implements protocol. The server drops a result with a stored id, but not the dead letters of its records.
func (window) mayBeDecided(d *inflight.Delivery) bool { return d.Frame != nil && !d.First }

// mayBeDecided implements protocol. The inputs whose results are stored are settled already.
func (p *chain) mayBeDecided(d *inflight.Delivery) bool {
	return d.Frame != nil && !d.First && (p.letters == nil || p.earlier.Lists(position(d)))
}
