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

// tryAlone runs a quarantined payload alone. After LoneRuns deaths of processes that did so, the payload becomes a dead letter.
func (t *tester) tryAlone(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	d, rows := &g.Items[items[0]], g.RowsOf(items)
	t.Log.Warn("a payload that no worker has settled yet is tried alone", "sequence", d.Sequence,
		"deliveries", d.NumDelivered, "bytes", len(d.Msg.Data()))
	if err := t.probe(ctx, pipe); err != nil {
		return t.withhold(ctx, g, rows, err)
	}
	if f := d.Frame; f != nil && f.Framed() && f.Fault() == nil {
		if last, err := t.Attempts.last(ctx, d); err == nil {
			if err := t.tryFrame(ctx, pipe, g, items[0], last); !errors.Is(err, errNoNotes) {
				return err
			}
		}
	}
	begun, err := t.Attempts.begin(ctx, d)
	if err == nil && begun >= LoneRuns {
		g.Settle(items[0])
		t.Ends.GiveUp(ctx, g.HandOver(items[0]), results.DeviceFault, fmt.Errorf("%d workers died while it was alone on a device that had just computed right", begun))
		return nil
	}
	t.deaths = begun
	if err != nil {
		t.deaths = -1
	}
	if err != nil {
		t.Log.Warn("could not note with the consumer that a payload is tried alone: if it ends processes without a word it is not "+
			"given up (may this user make the API request CONSUMER.CREATE for it? see docs/security.md)", "sequence", d.Sequence, "error", err)
	}
	t.lone = true
	err = t.tryItems(ctx, pipe, g, items)
	t.lone = false
	if t.deaths >= 0 && !errors.Is(err, device.ErrKernelFault) {
		t.Attempts.erase(d)
	}
	return err
}

// tryFrame runs a quarantined frame alone, in runs of records from last.Next. It gives up only the records that break the device.
// If the server accepts no notes, tryFrame does nothing and returns errNoNotes.
func (t *tester) tryFrame(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, item int, last attemptNote) error {
	d, rows := &g.Items[item], g.RowsOf([]int{item})
	runs, ok := last.Next(d.Frame.Records())
	if !ok {
		g.Settle(item)
		t.Ends.GiveUp(ctx, g.HandOver(item), results.DeviceFault, fmt.Errorf("more than %d of its records lost the device, each alone", maxCondemned))
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
		if g.IsSettled(item) { // the frame was given back
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
