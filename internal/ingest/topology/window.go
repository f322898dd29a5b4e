package topology

import (
	"fmt"
	"time"
)

const (
	// lateMost is how late a result may reach the stream after it was published, and an input this worker after it was delivered, both
	// together.
	lateMost = 20 * time.Second

	// latePart bounds that with a short duplicate window.
	latePart = 2

	// safeWindow is the shortest duplicate window that leaves that time.
	safeWindow = latePart * lateMost
)

// PublishFor is for how long after a moment before which no result of an input was stored a result of it may be published to a stream
// with that duplicate window: the window less 20 s, or half of it where that is more; a second at least, or nothing could be published.
func PublishFor(window time.Duration) time.Duration {
	return max(window-min(lateMost, window/latePart), time.Second)
}

// window is a duration as the command line of NATS takes it.
func window(d time.Duration) string { return fmt.Sprintf("%ds", int64(d.Round(time.Second).Seconds())) }
