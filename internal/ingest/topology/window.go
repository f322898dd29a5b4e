package topology

import (
	"fmt"
	"time"
)

const (
	// lateMax is the maximum sum of two delays. One is the delay of a published result on its way to the stream. The
	// other is the delay of a delivered input on its way to this worker.
	lateMax = 20 * time.Second

	// latePart limits lateMax to half of a short duplicate window.
	latePart = 2

	// safeWindow is the shortest duplicate window for which PublishFor subtracts all of lateMax.
	safeWindow = latePart * lateMax
)

// PublishFor returns the maximum time from an input's clearance to the publish of its result, given the stream's
// duplicate window. It is the window minus 20 s, or half of the window if that is longer. It is at least a second,
// because otherwise nothing could be published.
func PublishFor(window time.Duration) time.Duration {
	return max(window-min(lateMax, window/latePart), time.Second)
}

// window formats a duration for the nats command.
func window(d time.Duration) string { return fmt.Sprintf("%ds", int64(d.Round(time.Second).Seconds())) }
