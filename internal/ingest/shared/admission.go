package shared

import (
	"context"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
)

// admission selects the deliveries that must be processed, and sets their quarantine levels.
type admission struct {
	ends     *acknowledger
	levels   quarantine.Levels
	maxBytes int // maximum payload size in bytes: the smallest batch's capacity
	limit    int // number of deliveries after which a payload is tried alone
	last     int // the consumer's MaxDeliver; 0 or less means no limit
}

// admit reports whether a delivery must be processed. It gives up a delivery that can never be processed. It repeats
// the acknowledgement of a settled input, and acknowledges a delete marker, which isn't an input.
func (a *admission) admit(ctx context.Context, d *inflight.Delivery) bool {
	d.Level = a.levelOf(d)
	switch a.ends.ledger.take(d) {
	case inFlight:
		a.ends.pool.Release(d)
		return false
	case done:
		a.ends.ack(d)
		a.ends.pool.Release(d)
		a.ends.results.AlreadyStored(d)
		return false
	}
	if jsapi.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()) {
		a.ends.ack(d)
		a.ends.pool.Release(d)
		return false
	}
	var why results.Reason
	var cause error
	switch n := len(d.Msg.Data()); {
	case n > a.maxBytes && !a.ends.pool.Splits():
		why = results.TooLarge
		cause = results.ErrExceedsBatch(n, a.maxBytes)
	case a.lastChance(d):
		why, cause = results.MaxDeliver, tooOften(d)
	default:
		a.ends.pool.Unpack(d)
		return true
	}
	a.ends.GiveUp(ctx, *d, why, cause)
	d.Cost = 0 // the dead letter holds the memory now
	return false
}

// levelOf returns the quarantine level of a delivery; see quarantine.Levels. A delivery that this process gave back has
// level 0, because the process survived it. A payload is tried alone if it is held back or was delivered more often
// than limit. The count alone never makes it a dead letter, because workers may have died or given it back for other
// reasons.
func (a *admission) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if a.ends.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > a.limit || a.ends.judge.Holds(d) {
		level = max(level, a.levels.AloneLevel())
	}
	return level
}

// lastChance reports whether the consumer's MaxDeliver prevents a redelivery of the payload. Only a dead letter can
// then preserve the payload.
func (a *admission) lastChance(d *inflight.Delivery) bool {
	return a.last > 0 && d.NumDelivered >= a.last && d.NumDelivered > a.limit
}

func tooOften(d *inflight.Delivery) error {
	return fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
}
