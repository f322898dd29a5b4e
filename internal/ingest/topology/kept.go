package topology

import (
	"time"
)

// Bounds limits a stream that is created. The zero value has no limits.
type Bounds struct {
	MaxAge   time.Duration // how long a message is kept, read or not; 0: no limit
	MaxBytes int64         // the size at which the stream refuses messages; 0: no limit. NewBounds rounds it

	AskedAge, AskedBytes bool // whether the user chose the value; otherwise it is a default
}

// NewBounds returns bounds that are defaults. It rounds maxBytes up to whole KiB, because the nats command can't take larger sizes without
// a unit.
func NewBounds(maxAge time.Duration, maxBytes int64) Bounds {
	return Bounds{MaxAge: maxAge, MaxBytes: (maxBytes + kib - 1) / kib * kib}
}

const kib = 1 << 10

// Kept says what streams that are created keep. The zero value keeps everything, with one replica, or three in a cluster.
type Kept struct {
	Trim            bool // whether workers remove processed inputs (adr/0048); otherwise every input stays. Results always stay: they are looked up
	AskedEverything bool // whether the user chose that every input stays

	Inputs, Results, DeadLetters Bounds

	Replicas     int  // 1 to 5; 0: three in a cluster that has as many servers, otherwise one
	AskedStorage bool // whether the user chose Topology.Storage
}
