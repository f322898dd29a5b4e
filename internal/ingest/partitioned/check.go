package partitioned

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
)

// errOverridden ends a lease when the server no longer accepts its acknowledgements.
var errOverridden = errors.New("an acknowledgement of an earlier lease came late, and the server takes none below it")

// checker compares the server's state with the lease's when no deliveries arrive or acknowledged ones arrive again. Only the
// reader uses it.
type checker struct {
	*leaseState
	intake *intake

	checkedAt time.Time // time of the last query for the consumer's state
	resent    uint64    // stream sequence of the acknowledgement that was resent because the server did not have it; 0 for none
	resentAt  time.Time // time of the last resend for a covered input that was redelivered
}

// check checks whether the consumer's state is as expected, and repairs what it can. pin is the pin of this worker's turn, or
// empty if it has no turn.
func (c *checker) check(ctx, drainCtx context.Context, pin string) error {
	info, err := c.askConsumer(ctx)
	if err != nil {
		return err
	}
	c.host.pending(info.NumPending)
	if err := c.checkOverridden(info); err != nil {
		return err
	}
	if err := c.checkAcknowledged(drainCtx, info); err != nil {
		return err
	}
	_, taken := c.acks.reached()
	switch {
	case c.begun && info.Delivered.Consumer != taken && !pinnedTo(info, pin):
		return errPinLost // those deliveries belong to the next owner
	case c.begun && info.Delivered.Consumer != taken:
		return c.intake.fillTail(ctx, drainCtx, info) // the consumer's deliveries would have arrived by now
	case !c.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// The partition's owner is gone: the server has dropped the pin. That owner's deliveries would be redelivered only after
		// AckWait.
		c.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		if err := c.notes.noteDelivered(ctx, info); err != nil {
			return err
		}
		return c.server.reset(ctx, info)
	}
	return nil
}

// askConsumer returns the consumer's state. Only the reader may call it.
func (c *checker) askConsumer(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	c.checkedAt = time.Now()
	return c.server.info(ctx)
}

// checkOverridden returns an error if the server has an acknowledgement for a delivery that this lease has not received yet.
func (c *checker) checkOverridden(info *jetstream.ConsumerInfo) error {
	if _, taken := c.acks.reached(); c.begun && info.AckFloor.Consumer > taken {
		return errOverridden
	}
	return nil
}

// checkAcknowledged checks whether the server has the last acknowledgement. If not, it resends it once. If the resend did not
// help, because a late acknowledgement of an earlier lease has taken its number, it returns an error.
func (c *checker) checkAcknowledged(drainCtx context.Context, info *jetstream.ConsumerInfo) error {
	msg, sequence, open := c.acks.latest()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		c.resent = 0
		return nil
	}
	if c.resent == sequence {
		return errOverridden
	}
	c.resent = sequence
	c.acks.send(drainCtx, msg, sequence)
	return nil
}

// acknowledgeAgain resends the last acknowledgement for an input that it covered but that was redelivered. If the acknowledgement
// was lost, nothing else would ever cover that input. If the server rejects it, acknowledgeAgain checks why.
func (c *checker) acknowledgeAgain(ctx, drainCtx context.Context, sequence uint64) error {
	msg, covered, _ := c.acks.latest()
	if msg == nil || sequence > covered || time.Since(c.resentAt) < resendAfter {
		return nil
	}
	c.resentAt = time.Now()
	c.acks.send(drainCtx, msg, sequence)
	if time.Since(c.checkedAt) < topology.PinnedFor {
		return nil
	}
	info, err := c.askConsumer(ctx)
	if err != nil {
		return err
	}
	return c.checkOverridden(info)
}

// resendAfter is the minimum time between two resent acknowledgements. All inputs that one acknowledgement covers are redelivered
// together, so one resend is enough for them.
const resendAfter = 100 * time.Millisecond
