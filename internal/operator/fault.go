package operator

import (
	"errors"

	"millrace/internal/device"
)

// The faults of which an operator may be to blame. Metrics use the same names.
const (
	FaultDevice        = "device"         // its kernel lost the device
	FaultDeadline      = "deadline"       // its kernel didn't end in time
	FaultLaunch        = "launch"         // the device refused its launch on a payload
	FaultWrongResult   = "wrong_result"   // it computed a known payload wrongly
	FaultInvalidResult = "invalid_result" // it returned a status or a byte string that it doesn't declare
	FaultOutOfBounds   = "out_of_bounds"  // it accessed something outside a record, its result, or in a pass the batch
)

// Faults returns all faults.
func Faults() []string {
	return []string{FaultDevice, FaultDeadline, FaultLaunch, FaultWrongResult, FaultInvalidResult, FaultOutOfBounds}
}

// FaultOfLoss returns the fault that lost a device with err, and the name of the operator. The name is "" if no operator is known to be
// to blame.
func FaultOfLoss(err error) (name, fault string) {
	if !errors.Is(err, device.ErrLost) {
		return "", ""
	}
	name = device.FailedOperator(err)
	switch {
	case name == "":
		return "", ""
	case errors.Is(err, device.ErrHung):
		return name, FaultDeadline
	case errors.Is(err, device.ErrKernelFault):
		return name, FaultDevice
	}
	return name, FaultWrongResult
}

// FaultOfPayload returns the fault of an operator that failed with err on a payload or record alone, and the operator's name. The name is
// "" if no operator is known to be to blame.
func FaultOfPayload(err error) (name, fault string) {
	if name = device.FailedOperator(err); name == "" {
		return "", ""
	}
	if errors.As(err, new(*BatchError)) {
		return name, FaultOutOfBounds
	}
	return name, FaultLaunch
}

// BatchError is why an operator has no results for a batch as a whole, although the device works. Any record may be the cause.
type BatchError struct{ Text string }

func (b *BatchError) Error() string { return b.Text }

// Faulty is implemented by Refusers whose results a user's code writes. Such results are checked record by record: whoever wrote them,
// a status that isn't declared or a length beyond its bound must not be used.
type Faulty interface {
	Refuser

	// FailedBatch returns why the operator has no results for a batch of that many rows as a whole, or "" if it has.
	FailedBatch(results []byte, rows int) string

	// Overlong returns why a record has no result, or "" if each of its byte strings fits into its bound. results is what the
	// operator's kernel left for a batch with these offsets.
	Overlong(results []byte, offsets []uint32, row int) string

	// Fault returns the fault that a reason from Refusal or Overlong stands for, or "" if it is a declared reason.
	Fault(reason string) string
}

// RecordError is why an operator has no result for a record.
type RecordError struct {
	Operator string // name of the operator
	Text     string // what users read
}

func (r *RecordError) Error() string { return r.Text }

// ToBlame returns the name of the operator that err is about, or "" if it isn't known.
func ToBlame(err error) string {
	var refused *RecordError
	if errors.As(err, &refused) {
		return refused.Operator
	}
	return device.FailedOperator(err)
}
