package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// checker compares the server's state with the lease's when no deliveries arrive or acknowledged ones arrive again. Only the
// reader uses it.
type checker struct {
	*leaseState
	intake *intake

	resentAt time.Time // time of the last resend for a covered input that was redelivered
}

// check checks whether the consumer's state is as expected, and repairs what it can.
func (c *checker) check(ctx, drainCtx context.Context) error {
	info, err := c.server.info(ctx)
	if err != nil {
		return err
	}
	c.host.pending(info.NumPending)
	if err := c.keepMarkers(drainCtx); err != nil {
		return err
	}
	_, taken := c.acks.reached()
	switch {
	case !c.begun && pinOf(info) == "" && isOverAcknowledged(info):
		return c.repair(ctx, info)
	case !c.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// The partition's owner is gone: the server has dropped the pin.
		c.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		return c.redeliver(ctx, info)
	case !c.begun:
		return nil
	case pinnedTo(info, c.intake.pinned()) && isOverAcknowledged(info):
		return c.repair(ctx, info)
	case info.Delivered.Consumer == taken:
		c.acknowledgeAll(drainCtx, info)
		return nil
	}
	return c.intake.fill(ctx, drainCtx, info, taken) // the consumer's deliveries would have arrived by now
}

// keepMarkers keeps the result stream from removing the last commit marker for its age.
func (c *checker) keepMarkers(ctx context.Context) error {
	if c.commits == nil {
		return nil // before the lease has begun, or without markers
	}
	return c.commits.Keep(ctx)
}

// acknowledgeAll repeats the last acknowledgement if it covers everything that the consumer has delivered, and the server does not
// have it. The server ignores an acknowledgement if it has one with a higher number, even if that one covers less. An earlier owner
// may have sent such an acknowledgement, for an input that it took from a redelivery. So this one names the consumer's last
// delivery.
func (c *checker) acknowledgeAll(drainCtx context.Context, info *jetstream.ConsumerInfo) {
	msg, sequence, open := c.acks.latest()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		return
	}
	c.acks.send(drainCtx, c.server.receipt(sequence, info.Delivered.Consumer), sequence)
}

// acknowledgeAgain repeats the last acknowledgement for an input that it covered but that was redelivered. If the acknowledgement was
// lost or ignored, nothing else might cover that input soon. See acknowledgeAll for the number that it names.
func (c *checker) acknowledgeAgain(drainCtx context.Context, sequence uint64) {
	msg, covered, open := c.acks.latest()
	if msg == nil || sequence > covered || time.Since(c.resentAt) < resendAfter {
		return
	}
	c.resentAt = time.Now()
	if _, taken := c.acks.reached(); open == 0 {
		msg = c.server.receipt(covered, taken)
	}
	c.acks.send(drainCtx, msg, covered)
}

// resendAfter is the minimum time between two resent acknowledgements. All inputs that one acknowledgement covers are redelivered
// together, so one resend is enough for them.
const resendAfter = 100 * time.Millisecond
