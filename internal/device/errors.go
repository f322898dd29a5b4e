package device

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Every Error wraps one of them, except an Error that Attribute has made from another error. Use
// errors.Is to check for a kind.
var (
	// ErrLost means that the device is unusable for the rest of this process. Possible causes are an illegal address, a
	// failed kernel, an ECC error, or a device that fell off the bus. Don't retry. Restart the process instead.
	ErrLost = errors.New("device lost")

	// ErrKernelFault is a loss (it wraps ErrLost) that a kernel caused or may have caused. The kernel failed, did not
	// end, or accessed an illegal address. A payload can cause only this kind of loss. Payloads don't cause other
	// losses (ECC, MPS, a device that fell off the bus, an unknown code).
	ErrKernelFault = fmt.Errorf("%w by a kernel", ErrLost)

	// ErrHung is a loss (it wraps ErrKernelFault) of a device that doesn't finish its work. The device may still be
	// working, so the memory that it uses must not be reused or freed.
	ErrHung = fmt.Errorf("%w: it hangs", ErrKernelFault)

	// ErrOutOfMemory means that an allocation doesn't fit in the memory of the device, the host or a pool. A retry may
	// succeed after other users free memory.
	ErrOutOfMemory = errors.New("out of memory")

	// ErrLaunch means that the device refused a launch before it ran. The device still works.
	ErrLaunch = errors.New("launch failed")

	// ErrInvalid means that an argument is invalid, because of a bug in the caller or bad parameters.
	ErrInvalid = errors.New("invalid argument")

	// ErrNotReady means that the requested result doesn't exist yet.
	ErrNotReady = errors.New("not ready")

	// ErrNotFound means that no operator has the given name, or no device has the given ordinal or UUID.
	ErrNotFound = errors.New("not found")

	// ErrUnavailable means that this kind of device can't be used, because a library, a driver, a GPU or cgo is
	// missing.
	ErrUnavailable = errors.New("device unavailable")

	// ErrABI means that the kernel library's version of the ABI is incompatible.
	ErrABI = errors.New("kernel library ABI mismatch")

	// ErrClosed means that the device, stream, pool or event has been closed.
	ErrClosed = errors.New("closed")
)

// Error describes a failed call to a device.
type Error struct {
	Op     string // the call, for example "copy in"; empty if Attribute wrapped another error
	Device string // Info.ID; empty before a device is open

	// Operator is the name of the operator whose kernel failed. It is empty if the operator isn't certain.
	Operator string

	Kind   error  // one of the kinds above, or an error that Attribute wrapped
	Code   int    // the device's own code, for example a cudaError_t; 0 if there is none
	Detail string // the device's own message
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Device != "" {
		fmt.Fprintf(&b, "device %s: ", e.Device)
	}
	if e.Operator != "" {
		fmt.Fprintf(&b, "operator %s: ", e.Operator)
	}
	if e.Op != "" {
		fmt.Fprintf(&b, "%s: ", e.Op)
	}
	fmt.Fprintf(&b, "%v", e.Kind)
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.Code != 0 {
		fmt.Fprintf(&b, " (code %d)", e.Code)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Kind }

// Errorf returns an Error without a code. Its Detail is formatted from format and args.
func Errorf(op, device string, kind error, format string, args ...any) *Error {
	return &Error{Op: op, Device: device, Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Attribute returns a copy of err with the name of the operator whose kernel failed. If err isn't an *Error, Attribute
// wraps it in one.
func Attribute(err error, operator string) error {
	e, ok := err.(*Error) //nolint:errorlint // unwrapping would lose the outer error's text
	if !ok {
		return &Error{Operator: operator, Kind: err}
	}
	named := *e
	named.Operator = operator
	return &named
}

// FailedOperator returns the first operator name in err's tree of errors, or "" if there is none.
func FailedOperator(err error) string {
	switch e := err.(type) { //nolint:errorlint // errors.As would stop at the first Error
	case *Error:
		if e.Operator != "" {
			return e.Operator
		}
		return FailedOperator(e.Kind)
	case interface{ Unwrap() error }:
		return FailedOperator(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if name := FailedOperator(one); name != "" {
				return name
			}
		}
	}
	return ""
}

// Kind returns the name of an error's kind as used in metrics: "hung", "lost", "out_of_memory", "launch", "invalid",
// "unavailable", "abi" or "other".
func Kind(err error) string {
	switch {
	case errors.Is(err, ErrHung):
		return "hung"
	case errors.Is(err, ErrLost):
		return "lost"
	case errors.Is(err, ErrOutOfMemory):
		return "out_of_memory"
	case errors.Is(err, ErrLaunch):
		return "launch"
	case errors.Is(err, ErrInvalid):
		return "invalid"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrABI):
		return "abi"
	}
	return "other"
}

// LeakError lists the objects that were still open when the device was closed. Unless the device is lost, it has freed all of them.
type LeakError struct {
	Device string
	Open   []string // one description per object, such as "stream lane-0" or "pool 4096 bytes used"
}

func (l *LeakError) Error() string {
	return fmt.Sprintf("device %s: closed with %d objects still open: %s", l.Device, len(l.Open), strings.Join(l.Open, ", "))
}
