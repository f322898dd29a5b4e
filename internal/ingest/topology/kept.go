package topology

import (
	"time"
)

// Bounds has the limits of a new stream. The zero value has no limits.
type Bounds struct {
	MaxAge   time.Duration // maximum age of a message, even if it is unread; 0 means no limit
	MaxBytes int64         // maximum size of the stream, which then refuses messages; 0 means no limit. NewBounds rounds it

	AskedAge, AskedBytes bool // whether the user chose the value; otherwise it is a default
}

// NewBounds returns bounds as defaults, which the user did not choose. It rounds maxBytes up to whole KiB, because the nats command
// accepts large sizes only with a unit.
func NewBounds(maxAge time.Duration, maxBytes int64) Bounds {
	return Bounds{MaxAge: maxAge, MaxBytes: (maxBytes + kib - 1) / kib * kib}
}

const kib = 1 << 10

// Kept has the retention settings of new streams. The zero value keeps everything, with one replica, or three in a cluster.
type Kept struct {
	// Trim makes workers remove processed inputs (adr/0048). Without Trim, every input stays. Results always stay, because workers
	// look them up.
	Trim            bool
	AskedEverything bool // whether the user chose that every input stays

	Inputs, Results, DeadLetters Bounds

	Replicas     int  // 1 to 5; 0 means three in a cluster with enough servers, otherwise one
	AskedStorage bool // whether the user chose Topology.Storage
}
