package device

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Errors of this package wrap exactly one of them: test with errors.Is.
var (
	// ErrLost: a fault that leaves the device unusable for this process (illegal address, failed
	// kernel, ECC, fallen off the bus). Never retried in place: the process must end and be restarted.
	ErrLost = errors.New("device lost")

	// ErrKernelFault: a loss (it wraps ErrLost) that a kernel caused or may have caused by what it did: an illegal
	// address, a failed kernel, a kernel that does not end. Only such a loss may be a payload's fault: others
	// (ECC, MPS, a device that fell off the bus, a code that nobody knows) say nothing about the payloads.
	ErrKernelFault = fmt.Errorf("%w by a kernel", ErrLost)

	// ErrHung: a loss (it wraps ErrKernelFault) of a device that does not bring to an end what it was given. It may
	// still be at it, so the memory that it was given must not be used again or freed.
	ErrHung = fmt.Errorf("%w: it hangs", ErrKernelFault)

	// ErrOutOfMemory: the device, the host or a pool's cap has no room. Others may free some.
	ErrOutOfMemory = errors.New("out of memory")

	// ErrLaunch: a launch was refused before it ran. The device is well.
	ErrLaunch = errors.New("launch failed")

	// ErrInvalid: an argument the device cannot take: a bug of the caller, or bad parameters.
	ErrInvalid = errors.New("invalid argument")

	// ErrNotReady: asked for what has not happened yet.
	ErrNotReady = errors.New("not ready")

	// ErrNotFound: no operator of that name, or no device of that ordinal or UUID.
	ErrNotFound = errors.New("not found")

	// ErrUnavailable: this kind of device cannot be had here (no library, no driver, no GPU, no cgo).
	ErrUnavailable = errors.New("device unavailable")

	// ErrABI: the kernel library speaks another version of the ABI.
	ErrABI = errors.New("kernel library ABI mismatch")

	// ErrClosed: the device, stream, pool or event has been closed.
	ErrClosed = errors.New("closed")
)

// Error is a failed call: what was asked, which kind of failure, and what the device said.
type Error struct {
	Op     string // the call, e.g. "copy in"
	Device string // Info.ID; empty before a device is open
	Kind   error  // one of the kinds above
	Code   int    // the device's own code, e.g. a cudaError_t; 0 where there is none
	Detail string // the device's own words
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Device != "" {
		fmt.Fprintf(&b, "device %s: ", e.Device)
	}
	fmt.Fprintf(&b, "%s: %v", e.Op, e.Kind)
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.Code != 0 {
		fmt.Fprintf(&b, " (code %d)", e.Code)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Kind }

// Errorf makes an Error of that kind with no code.
func Errorf(op, device string, kind error, format string, args ...any) *Error {
	return &Error{Op: op, Device: device, Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Kind names an error's kind in the form metrics use: "hung", "lost", "out_of_memory", "launch", "invalid",
// "unavailable", "abi", "other".
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

// LeakError is what Close found still open. The device has freed it.
type LeakError struct {
	Device string
	Open   []string // one description each: "stream lane-0", "event", "pool 4096 bytes used", "host buffer 1048576 bytes"
}

func (e *LeakError) Error() string {
	return fmt.Sprintf("device %s: closed with %d objects still open: %s", e.Device, len(e.Open), strings.Join(e.Open, ", "))
}
