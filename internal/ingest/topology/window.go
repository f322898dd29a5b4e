package topology

import (
	"fmt"
	"time"
)

const (
	// lateMost is the maximum total delay of a result on its way to the stream after it was published, and of an
	// input on its way to this worker after it was delivered.
	lateMost = 20 * time.Second

	// latePart limits that delay to half of a short duplicate window.
	latePart = 2

	// safeWindow is the shortest duplicate window that allows the full delay.
	safeWindow = latePart * lateMost
)

// PublishFor returns how long a result may still be published after a moment at which no result of its input was
// stored, given the stream's duplicate window. It is the window less 20 s, or half of the window if that is more, and
// at least a second, because otherwise nothing could be published.
func PublishFor(window time.Duration) time.Duration {
	return max(window-min(lateMost, window/latePart), time.Second)
}

// window formats a duration for the nats command.
func window(d time.Duration) string { return fmt.Sprintf("%ds", int64(d.Round(time.Second).Seconds())) }
