package lease

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// checker compares the consumer's state with the state of the lease. It runs when no delivery arrives, or when an
// acknowledged input is redelivered. Only the reader uses it.
type checker struct {
	*leaseState
	intake *intake

	resentAt time.Time // time when acknowledgeAgain last repeated an acknowledgement
}

// check compares the consumer's state with the lease, and repairs a difference if possible.
func (c *checker) check(ctx, drainCtx context.Context) error {
	info, err := c.server.Info(ctx)
	if err != nil {
		return err
	}
	c.owner.pending(info.NumPending)
	if err := c.keepMarkers(drainCtx); err != nil {
		return err
	}
	_, taken := c.acks.reached()
	switch {
	case !c.begun && pinOf(info) == "" && isOverAcknowledged(info):
		return c.repair(ctx, info)
	case !c.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// The server has dropped the pin, so the partition's owner is gone.
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
	return c.intake.fill(ctx, drainCtx, info, taken) // missing deliveries would have arrived by now
}

// keepMarkers keeps the stream from removing the last commit marker because of its age.
func (c *checker) keepMarkers(ctx context.Context) error {
	if c.commits == nil {
		return nil // before the lease has begun, or without markers
	}
	return c.commits.Keep(ctx)
}

// acknowledgeAll repeats the last acknowledgement if it covers all deliveries and the server hasn't processed it. An
// earlier owner may have acknowledged a redelivered input with a higher consumer sequence. The server then ignores
// acknowledgements with lower ones, even if they cover more inputs. The repeated acknowledgement therefore names the
// consumer's last delivery.
func (c *checker) acknowledgeAll(drainCtx context.Context, info *jetstream.ConsumerInfo) {
	msg, sequence, open := c.acks.latest()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		return
	}
	c.acks.send(drainCtx, c.server.receipt(sequence, info.Delivered.Consumer), sequence)
}

// acknowledgeAgain repeats the last acknowledgement if it covered the redelivered input with the given sequence. The
// last acknowledgement may have been lost or ignored, and the next one may be late. For the consumer sequence, see
// acknowledgeAll.
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

// resendAfter is the minimum time between two resent acknowledgements. The server redelivers all inputs of a lost
// acknowledgement together, so one resend is enough.
const resendAfter = 100 * time.Millisecond
