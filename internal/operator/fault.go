package operator

import (
	"errors"

	"millrace/internal/device"
)

// These constants are the faults that an operator may cause. Metrics use the same names.
const (
	FaultDevice        = "device"         // the operator's kernel made the device fail
	FaultDeadline      = "deadline"       // the operator's kernel didn't finish in time
	FaultLaunch        = "launch"         // the device rejected the operator's launch on a payload
	FaultWrongResult   = "wrong_result"   // the operator returned a wrong result for a known payload
	FaultInvalidResult = "invalid_result" // the operator returned a status or a byte string that it doesn't declare
	FaultOutOfBounds   = "out_of_bounds"  // the operator accessed memory outside a record, its result, or (in a pass) the batch
)

// Faults returns all faults.
func Faults() []string {
	return []string{FaultDevice, FaultDeadline, FaultLaunch, FaultWrongResult, FaultInvalidResult, FaultOutOfBounds}
}

// FaultOfLoss returns the name of the operator that made a device fail, and the operator's fault. err is the error about the loss
// of the device. Both results are "" if err isn't a loss or if its operator isn't known.
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

// FaultOfPayload returns the name of the operator that has no result for a payload or record, and the operator's fault. err is the
// error about the payload or record. Both results are "" if the operator isn't known.
func FaultOfPayload(err error) (name, fault string) {
	if name = device.FailedOperator(err); name == "" {
		return "", ""
	}
	if errors.As(err, new(*BatchError)) {
		return name, FaultOutOfBounds
	}
	return name, FaultLaunch
}

// BatchError is the error of an operator that has no results for a whole batch, although the device works. Any record of the batch may be
// the cause.
type BatchError struct{ Text string }

func (b *BatchError) Error() string { return b.Text }

// Faulty is implemented by Refusers that run users' code. The caller checks each record's result. It must not use a result with an
// undeclared status or with a length above the limit.
type Faulty interface {
	Refuser

	// FailedBatch returns the reason why the operator has no results for a whole batch, or "" if it has results. rows is the number of
	// rows in the batch.
	FailedBatch(results []byte, rows int) string

	// Overlong returns a reason if a byte string of the record exceeds its limit, or else "". results is the result of the operator's
	// kernel for a batch with the given offsets.
	Overlong(results []byte, offsets []uint32, row int) string

	// Fault returns the fault for a reason from Refusal or Overlong, or "" if the operator declares the reason.
	Fault(reason string) string
}

// RecordError is the error of an operator that has no result for a record.
type RecordError struct {
	Operator string // name of the operator
	Text     string // message for users
}

func (r *RecordError) Error() string { return r.Text }

// ToBlame returns the name of the operator that caused err, or "" if the operator isn't known.
func ToBlame(err error) string {
	var refused *RecordError
	if errors.As(err, &refused) {
		return refused.Operator
	}
	return device.FailedOperator(err)
}
