package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natsconn"
)

// What a lease checks while no deliveries arrive.

// checkConsumer checks whether the consumer is as it should be, and mends what it can.
func (l *lease) checkConsumer(ctx, drainCtx context.Context) error {
	info, err := l.askConsumer(ctx)
	if err != nil {
		return err
	}
	l.host.pending(info.NumPending)
	if err := l.checkOverridden(info); err != nil {
		return err
	}
	if err := l.checkAcknowledged(drainCtx, info); err != nil {
		return err
	}
	l.mu.Lock()
	taken := l.taken
	l.mu.Unlock()
	switch {
	case l.begun && info.Delivered.Consumer != taken:
		return l.fillTail(ctx, drainCtx, info) // what it delivered would have arrived by now
	case !l.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// Its owner is gone: the server has dropped the pin. What that one had would be delivered only after AckWait.
		l.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		if err := l.noteDelivered(ctx, info); err != nil {
			return err
		}
		return l.server.reset(ctx)
	}
	return nil
}

// askConsumer returns the consumer's state. Only the reader may call it.
func (l *lease) askConsumer(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	l.checkedAt = time.Now()
	return l.server.info(ctx)
}

// checkOverridden returns an error if the server has an acknowledgement of a delivery that this lease has not had yet.
func (l *lease) checkOverridden(info *jetstream.ConsumerInfo) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun && info.AckFloor.Consumer > l.taken {
		return errOverridden
	}
	return nil
}

// checkAcknowledged checks whether the server has the last acknowledgement. If not it sends it again. If that was of no use
// either, because a late acknowledgement of an earlier lease has taken its number, it returns an error.
func (l *lease) checkAcknowledged(drainCtx context.Context, info *jetstream.ConsumerInfo) error {
	l.mu.Lock()
	msg, sequence, open := l.lastAcked, l.ackedUpTo, l.floor.Open()
	l.mu.Unlock()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		l.resent = 0
		return nil
	}
	if l.resent == sequence {
		return errOverridden
	}
	l.resent = sequence
	l.sendAck(drainCtx, msg, sequence)
	return nil
}
