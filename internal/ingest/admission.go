package ingest

import (
	"context"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
)

// admission decides which deliveries are processed, and how suspect each is.
type admission struct {
	ends     *acknowledger
	levels   quarantine.Levels
	maxBytes int // of a payload: what the smallest batch takes
	limit    int // deliveries of a payload before it is tried alone
	last     int // the consumer's own limit of deliveries; 0 or less: none
}

// admit decides whether a delivery is to be processed. What never can be is given up here; what was processed
// already, though the server did not hear of it in time, is acknowledged again.
func (a *admission) admit(ctx context.Context, d *inflight.Delivery) bool {
	d.Level = a.levelOf(d)
	switch a.ends.ledger.take(d) {
	case inHand:
		a.ends.pool.Release(d)
		return false
	case done:
		a.ends.ack(d)
		a.ends.pool.Release(d)
		a.ends.results.AlreadyStored(d)
		return false
	}
	var why results.Reason
	var cause error
	switch n := len(d.Msg.Data()); {
	case n > a.maxBytes:
		why = results.TooLarge
		cause = results.ErrExceedsBatch(n, a.maxBytes)
	case a.lastChance(d):
		why, cause = results.MaxDeliver, tooOften(d)
	default:
		return true
	}
	a.ends.GiveUp(ctx, *d, why, cause)
	d.Cost = 0 // it is the dead letter's
	return false
}

// levelOf is how suspect a delivery is. One that this process gave back is not, since the process lives; unless it failed
// alone and nothing has come right since, or comes more often than the limit allows: those are tried alone. The count alone
// gives nothing up, since it says nothing about what was tried: workers may have died or given it back for any other reason.
func (a *admission) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if a.ends.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > a.limit || a.ends.judge.Holds(d) {
		level = max(level, a.levels.Alone())
	}
	return level
}

// lastChance says whether the server will not deliver a payload again, because the consumer has a limit of its own, so that
// all that can be done is to keep it as a dead letter.
func (a *admission) lastChance(d *inflight.Delivery) bool {
	return a.last > 0 && d.NumDelivered >= a.last && d.NumDelivered > a.limit
}

func tooOften(d *inflight.Delivery) error {
	return fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
}
