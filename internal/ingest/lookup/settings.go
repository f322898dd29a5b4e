package lookup

import (
	"errors"
	"log/slog"
	"time"
)

// Settings say where to look.
type Settings struct {
	Input   string   // the input stream
	Streams []string // that store results and dead letters

	// BySubject says that inputs are delivered in the order of their sequences within a partition only, and that all inputs of a subject
	// are in one. Find is then asked for inputs of one partition at a time.
	BySubject bool

	// Deliveries is the header of results that were not stored soon after the first delivery of their input.
	Deliveries string

	Log *slog.Logger
}

// ErrImpossible says that results cannot be read, and that it is of no use to try again.
var ErrImpossible = errors.New("results cannot be looked up")

// slack is added to what is scanned, for clocks of servers that differ and results that were on their way.
const slack = 30 * time.Second
