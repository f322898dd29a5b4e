package lookup

import (
	"errors"
	"log/slog"
	"time"
)

// Options defines where to search for results.
type Options struct {
	Input   string   // name of the input stream
	Streams []string // names of the streams that store results and dead letters

	// BySubject means that only inputs of the same partition are delivered in order. All inputs of a subject are in one
	// partition. Each call of Find must then pass inputs of a single partition.
	BySubject bool

	// Deliveries is the header on each result that wasn't stored soon after the first delivery of its input.
	Deliveries string

	// Part is the header with the value i/n on each part of a result in n parts. The last part is stored last.
	Part string

	Log *slog.Logger
}

// ErrImpossible means that results can't be read and that a retry won't help.
var ErrImpossible = errors.New("results cannot be looked up")

// slack extends the scanned period, because the clocks of servers differ and results may have been in transit.
const slack = 30 * time.Second
