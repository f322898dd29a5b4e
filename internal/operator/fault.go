package operator

import (
	"errors"

	"millrace/internal/device"
)

// These constants are the faults that an operator may cause. Metrics use the same names.
const (
	FaultDevice        = "device"         // the operator's kernel lost the device
	FaultDeadline      = "deadline"       // the operator's kernel didn't finish in time
	FaultLaunch        = "launch"         // the device rejected the operator's launch on a payload
	FaultWrongResult   = "wrong_result"   // the operator computed a known payload wrongly
	FaultInvalidResult = "invalid_result" // the operator returned a status or a byte string that it doesn't declare
	FaultOutOfBounds   = "out_of_bounds"  // the operator accessed memory outside a record, its result, or (in a pass) the batch
)

// Faults returns all faults.
func Faults() []string {
	return []string{FaultDevice, FaultDeadline, FaultLaunch, FaultWrongResult, FaultInvalidResult, FaultOutOfBounds}
}

// FaultOfLoss returns the fault that lost a device with err, and the name of the operator. The name is "" if no operator is known to
// have caused the loss.
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
// "" if no operator is known to have caused the error.
func FaultOfPayload(err error) (name, fault string) {
	if name = device.FailedOperator(err); name == "" {
		return "", ""
	}
	if errors.As(err, new(*BatchError)) {
		return name, FaultOutOfBounds
	}
	return name, FaultLaunch
}

// BatchError is the error of an operator that has no results for a whole batch, although the device works. Any record may be
// the cause.
type BatchError struct{ Text string }

func (b *BatchError) Error() string { return b.Text }

// Faulty is implemented by Refusers whose results a user's code writes. The results are checked record by record. A result must not be
// used if its status isn't declared, or if a length exceeds its limit.
type Faulty interface {
	Refuser

	// FailedBatch returns the reason for which the operator has no results for a whole batch of that many rows. It
	// returns "" if the operator has results.
	FailedBatch(results []byte, rows int) string

	// Overlong returns a reason if a byte string of the record exceeds its limit, and "" otherwise. results is the
	// result of the operator's kernel for a batch with these offsets.
	Overlong(results []byte, offsets []uint32, row int) string

	// Fault returns the fault for a reason from Refusal or Overlong, or "" if it is a declared reason.
	Fault(reason string) string
}

// RecordError is the error of an operator that has no result for a record.
type RecordError struct {
	Operator string // name of the operator
	Text     string // message for users
}

func (r *RecordError) Error() string { return r.Text }

// ToBlame returns the name of the operator that caused err, or "" if that isn't known.
func ToBlame(err error) string {
	var refused *RecordError
	if errors.As(err, &refused) {
		return refused.Operator
	}
	return device.FailedOperator(err)
}
