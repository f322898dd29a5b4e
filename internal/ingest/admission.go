package ingest

import (
	"context"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// admit decides whether a delivery is to be processed. What never can be is given up here; what was processed
// already, though the server did not hear of it in time, is acknowledged again.
func (w *Worker) admit(ctx context.Context, d *inflight.Delivery) bool {
	d.Level = w.levelOf(d)
	switch w.ledger.take(d) {
	case inHand:
		w.pool.Release(d)
		return false
	case done:
		w.ack(d)
		w.pool.Release(d)
		w.results.AlreadyStored(d)
		return false
	}
	var why results.Reason
	var cause error
	switch n := len(d.Msg.Data()); {
	case n > w.maxBytes:
		why = results.TooLarge
		cause = tooLarge(n, w.maxBytes)
	case w.lastChance(d):
		why, cause = results.MaxDeliver, tooOften(d)
	default:
		return true
	}
	w.GiveUp(ctx, *d, why, cause)
	d.Cost = 0 // it is the dead letter's
	return false
}

// tooLarge is the reason of a payload that no batch takes.
func tooLarge(bytes, most int) error {
	return fmt.Errorf("payload of %d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, most)
}

// levelOf is how suspect a delivery is. One that this process gave back is not, since the process lives; unless it failed
// alone and nothing has come right since, or comes more often than the limit allows: those are tried alone. The count alone
// gives nothing up, since it says nothing about what was tried: workers may have died or given it back for any other reason.
func (w *Worker) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if w.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > w.limit || w.judge.Holds(d) {
		level = max(level, w.levels.Alone())
	}
	return level
}

// lastChance says whether the server will not deliver a payload again, because the consumer has a limit of its own, so that
// all that can be done is to keep it as a dead letter.
func (w *Worker) lastChance(d *inflight.Delivery) bool {
	return w.last > 0 && d.NumDelivered >= w.last && d.NumDelivered > w.limit
}

func tooOften(d *inflight.Delivery) error {
	return fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
}
