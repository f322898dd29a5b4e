package topology

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// The smallest and largest value of MILLRACE_ACK_WAIT.
const (
	minAckWait = time.Second
	maxAckWait = time.Hour
)

// agreement compares a consumer's settings with the worker's variables. The variables apply only when a consumer is
// created. An existing consumer keeps its settings, so agreement reports variables that were changed afterwards.
func agreement(l Topology, u Use, c jetstream.ConsumerConfig, say func(level finding.Level, found, advice string)) {
	edit := fmt.Sprintf("(nats consumer edit %s %s", l.Stream, c.Durable)
	acknowledges := c.AckPolicy != jetstream.AckNonePolicy // ack wait applies only with acknowledgements
	if acknowledges && c.AckWait != l.AckWait {
		set := ""
		if c.AckWait >= minAckWait && c.AckWait <= maxAckWait {
			set = fmt.Sprintf("set MILLRACE_ACK_WAIT=%s, or ", c.AckWait)
		}
		say(finding.Warning, fmt.Sprintf("ack wait %s, and MILLRACE_ACK_WAIT is %s", c.AckWait, l.AckWait),
			fmt.Sprintf("the consumer's setting applies; %schange the consumer %s --wait %s)", set, edit, l.AckWait))
	}
	if acknowledges && u.Linger >= c.AckWait {
		say(finding.Warning, fmt.Sprintf("ack wait %s, and MILLRACE_LINGER is %s", c.AckWait, u.Linger),
			"payloads may be delivered again while they wait for their batch; lower MILLRACE_LINGER or raise the consumer's ack wait")
	}
	if asked := l.AskedAckPending; c.MaxAckPending > 0 && c.MaxAckPending < asked {
		say(finding.Warning, fmt.Sprintf("max ack pending %d, and MILLRACE_MAX_ACK_PENDING is %d", c.MaxAckPending, asked),
			fmt.Sprintf("all workers of the consumer share it, and some may wait for others; change it %s --max-pending %d)", edit, asked))
	}
}
