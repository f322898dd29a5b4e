package partitioned

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// errReset ends a lease whose consumer has restarted its consumer sequences. Acknowledgements of the lease would name
// wrong deliveries.
var errReset = errors.New("the consumer was reset, or restored from an older state")

// isOverAcknowledged reports whether the acknowledged consumer sequence is higher than the delivered one, or equal
// although inputs are unacknowledged. This happens if an administrator resets the consumer while an acknowledgement is
// in transit, or if a server crashed and lost deliveries. The server then ignores all other acknowledgements and
// redelivery requests, until the consumer has made more deliveries.
func isOverAcknowledged(info *jetstream.ConsumerInfo) bool {
	acknowledged, delivered := info.AckFloor.Consumer, info.Delivered.Consumer
	return acknowledged > delivered || acknowledged == delivered && info.NumAckPending > 0
}

// repair resets an over-acknowledged consumer to its floor, because nothing else makes the server accept acknowledgements. It always
// returns an error, which ends the lease.
func (l *leaseState) repair(ctx context.Context, info *jetstream.ConsumerInfo) error {
	l.log.Warn("the server has an acknowledgement with a number as high as the consumer's last delivery; resetting the consumer to its floor",
		"floor", info.AckFloor.Stream, "acknowledged", info.AckFloor.Consumer, "delivered", info.Delivered.Consumer)
	if err := l.server.reset(ctx, info.AckFloor.Stream+1); err != nil {
		return fmt.Errorf("reset the consumer to sequence %d, which the server needs to accept acknowledgements again (allow "+
			"the API request CONSUMER.RESET, or stop the workers and reset it): %w", info.AckFloor.Stream+1, err)
	}
	return errReset
}
