package quarantine

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// tryFrame tries a quarantined frame alone, in runs of records that follow from the last process's death. So the records that lose
// the device are found, and only they are given up. It returns errNoNotes, and has done nothing, if the server takes no notes.
func (t *tester) tryFrame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, item int, last attemptNote) error {
	d, rows := &g.Items[item], g.RowsOf([]int{item})
	runs, ok := last.Next(d.Frame.Records())
	if !ok {
		g.Settle(item)
		t.Ends.GiveUp(ctx, g.HandOver(item), results.DeviceFault, fmt.Errorf("more than %d of its records lost the device, each alone", mostCondemned))
		return nil
	}
	for _, i := range last.Condemned {
		d.Frame.Mark(i, record.DeviceFault)
	}
	for n, r := range runs {
		t.Log.Warn("records that no worker has settled yet are tried alone", "sequence", d.Sequence, "first", r.First, "records", r.Records,
			"condemned", len(last.Condemned))
		if err := t.Attempts.keep(ctx, d, last.Begin(r)); err != nil && n == 0 {
			return errNoNotes
		} else if err != nil {
			return t.withhold(ctx, g, rows, fmt.Errorf("could not note with the consumer which records are tried alone: %w", err))
		}
		if err := t.try(ctx, pipe, g, rows[r.First:][:r.Records]); err != nil {
			if !errors.Is(err, device.ErrKernelFault) {
				t.Attempts.erase(d)
			}
			return err
		}
		if g.IsSettled(item) { // it was given back
			break
		}
		if err := t.probe(ctx, pipe); err != nil {
			return t.withhold(ctx, g, rows, err)
		}
	}
	t.Attempts.erase(d)
	g.CollectedRows(rows)
	t.storeFrames(ctx, pipe, g, []int{item})
	return nil
}
