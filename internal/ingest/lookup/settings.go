package lookup

import (
	"errors"
	"log/slog"
	"time"
)

// Settings says where to search for results.
type Settings struct {
	Input   string   // the input stream
	Streams []string // the streams that store results and dead letters

	// BySubject means that inputs are delivered in the order of their sequences only within a partition, and that all
	// inputs of a subject are in one partition. Each call of Find is then for the inputs of one partition.
	BySubject bool

	// Deliveries is the header of results that weren't stored soon after the first delivery of their input.
	Deliveries string

	Log *slog.Logger
}

// ErrImpossible means that results can't be read, and that a retry is useless.
var ErrImpossible = errors.New("results cannot be looked up")

// slack extends the scanned period, because servers' clocks differ and results may have been in transit.
const slack = 30 * time.Second
