// Package record defines the status of a record. A frame is a message that holds several records, and a record is the
// input of an operator.
//
// Packages frame and ingest set the status of each record. Packages table and arrowipc write it into results. Start
// reading with Status.
package record

import (
	"fmt"
	"slices"
)

// Status is the outcome of a record's processing. Its number is the record's status byte in binary results, so the
// numbers never change.
type Status uint8

// The statuses. A record with a status from TooLarge on is also published as a dead letter.
const (
	OK            Status = iota // the record has a result of every operator
	Null                        // the record is null in the input's column, or it lacks the field and MILLRACE_FIELD_MISSING is null
	TooLarge                    // the record exceeds a batch, or its result exceeds the server's limit
	OperatorError               // an operator fails on the record
	DeviceFault                 // the record breaks the device
	NoField                     // the record doesn't have the field that MILLRACE_FIELD names, or the field isn't a string
	InvalidJSON                 // the record isn't valid JSON
	FilterError                 // the filter fails on the record

	Statuses = iota // number of statuses
)

var names = [Statuses]string{"ok", "null", "too_large", "operator_error", "device_fault", "no_field", "invalid_json", "filter_error"}

// messages has a sentence for each status. It depends on the status alone, because a result has the same bytes on every
// device and at any batch size.
var messages = [Statuses]string{
	"the record was processed",
	"the record is null",
	"the record exceeds a batch, or its result exceeds the server's limit",
	"an operator fails on the record",
	"the record breaks the device",
	"the record has no text in the configured field",
	"the record is not valid JSON",
	"the filter fails on the record",
}

// String returns the name of the status in results. From TooLarge on, that name is also the reason of the record's dead
// letter.
func (s Status) String() string {
	if !s.IsValid() {
		return fmt.Sprintf("Status(%d)", uint8(s))
	}
	return names[s]
}

// Parse returns the status with the given name. ok is false if no status has that name.
func Parse(name string) (s Status, ok bool) {
	i := slices.Index(names[:], name)
	return Status(max(i, 0)), i >= 0
}

// Message returns a human-readable sentence about the status. It panics if the status is not valid.
func (s Status) Message() string { return messages[s] }

// Failed reports whether the record is also published as a dead letter.
func (s Status) Failed() bool { return s >= TooLarge }

// IsValid reports whether the status is one of this package's constants.
func (s Status) IsValid() bool { return s < Statuses }
