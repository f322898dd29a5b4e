package conformance

import (
	"fmt"
	"strconv"
)

// Kind is what is wrong.
type Kind int

// The kinds of findings.
const (
	OutOfBounds   Kind = iota + 1 // the code accessed a byte outside a record or its result
	WroteOutside                  // it wrote outside the memory of its result and scratch
	Undeclared                    // it left a status or a length that it doesn't declare
	LeftOver                      // a record that isn't done has a result
	WrongNeeds                    // it asks for other memory than its declaration says
	Unrepeatable                  // the same batch gives another result
	Uninitialized                 // a result depends on what was in memory
	ReadOutside                   // a result depends on bytes around the batch
	Placement                     // a result depends on where the batch is in memory
	Neighbors                     // a result depends on the other records of the batch
	Devices                       // two devices give different results
	Lost                          // the device failed
	Endless                       // a batch didn't end
	Crashed                       // the process that ran it ended
	Unexpected                    // a sample has another result than its author expects
)

// Finding is something wrong with an operator: in which batch, in which record, and what. It is an error.
type Finding struct {
	Kind   Kind
	Batch  string
	Record int    // its index in the batch; -1 if the finding is about the whole batch
	Data   []byte // its bytes
	Text   string
}

// String describes the finding in one line.
func (f Finding) String() string {
	if f.Record < 0 {
		return fmt.Sprintf("batch %q: %s", f.Batch, f.Text)
	}
	const most = 16
	data, more := f.Data, ""
	if len(data) > most {
		data, more = data[:most], "..."
	}
	return fmt.Sprintf("batch %q, record %d (%d bytes, %s%s): %s", f.Batch, f.Record, len(f.Data), strconv.Quote(string(data)), more, f.Text)
}

// Error implements error.
func (f *Finding) Error() string { return f.String() }

// fatal reports whether nothing more can be computed on the device.
func (f *Finding) fatal() bool { return f.Kind == Lost || f.Kind == Endless }

// Report is the outcome of a test.
type Report struct {
	Records  int       // records that were computed
	Done     int       // of those, records with a result
	Findings []Finding // at most one per batch and kind
	Untested []string  // what wasn't tested, and why
	Stopped  bool      // the device failed or doesn't finish a batch, so the rest wasn't tested
}
