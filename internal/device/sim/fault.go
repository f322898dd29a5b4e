package sim

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// FaultKind is the kind of failure to inject.
type FaultKind uint8

const (
	// OutOfMemory: an allocation from a pool fails with ErrOutOfMemory. Nth counts calls of Pool.Alloc.
	OutOfMemory FaultKind = iota + 1

	// PinnedOutOfMemory: AllocHost fails with ErrOutOfMemory. Nth counts calls of AllocHost.
	PinnedOutOfMemory

	// LaunchFailure: a launch is refused with ErrLaunch, and the device still works. Nth counts calls of Stream.Launch.
	LaunchFailure

	// DeviceLoss: the device is lost permanently. Nth counts calls of Stream.Launch, and the loss happens when that
	// launch ends; Marker is another trigger. The losses are ErrKernelFault.
	DeviceLoss

	// LateCompletion: a completion arrives Delay after its stream reached the notification. The stream doesn't wait for
	// it. Nth counts calls of Stream.Notify.
	LateCompletion

	// LostCompletion: a completion never arrives, although the device works. Nth counts calls of Stream.Notify.
	LostCompletion
)

func (k FaultKind) String() string {
	if k > LostCompletion {
		return "unknown"
	}
	return [...]string{
		"none", "out of memory", "pinned out of memory", "launch failure", "device loss", "late completion", "lost completion",
	}[k]
}

// Fault is a failure to inject. It has one trigger: Nth, Probability or Marker. Calls are counted from 1 over the whole
// device. Calls with invalid arguments are not counted.
type Fault struct {
	Kind FaultKind

	Nth         int     // the call that fails
	Probability float64 // each call fails with this probability, drawn from Options.Seed
	Marker      []byte  // DeviceLoss: launches with a row that contains these bytes fail

	Delay time.Duration // LateCompletion: delay of the completion
}

// check returns an error if the fault is invalid.
func (f Fault) check() error {
	triggers := 0
	for _, set := range []bool{f.Nth != 0, f.Probability != 0, len(f.Marker) > 0} {
		if set {
			triggers++
		}
	}
	switch {
	case f.Kind < OutOfMemory || f.Kind > LostCompletion:
		return fmt.Errorf("kind %d is not known", f.Kind)
	case triggers != 1:
		return fmt.Errorf("has %d triggers: set one of Nth, Probability and Marker", triggers)
	case f.Nth < 0 || !(f.Probability >= 0 && f.Probability <= 1):
		return errors.New("Nth must be more than 0, Probability at most 1")
	case f.Kind != DeviceLoss && f.Nth == 0 && f.Probability == 0:
		return errors.New("Marker is a trigger of a device loss alone")
	case (f.Kind == LateCompletion) != (f.Delay > 0):
		return errors.New("a late completion needs a Delay of more than 0, and nothing else has one")
	}
	return nil
}

// counts holds the numbers of calls, for Fault.Nth.
type counts struct {
	poolAllocs, hostAllocs, launches, notifies uint64
}

// match returns the first fault of that kind that applies to the nth call.
func (d *Device) match(kind FaultKind, n uint64) (Fault, bool) {
	for i, f := range d.faults {
		if f.Kind != kind {
			continue
		}
		if uint64(f.Nth) == n || draw(d.seed, uint64(i)+1, n) < f.Probability {
			return f, true
		}
	}
	return Fault{}, false
}

// injected counts a call and reports whether a fault of that kind applies to it.
func (d *Device) injected(kind FaultKind, calls *uint64) bool {
	*calls++
	_, ok := d.match(kind, *calls)
	return ok
}

// marker returns a device loss's marker that one of the rows contains, or nil.
func (d *Device) marker(rows []byte, offsets []uint32) []byte {
	for _, f := range d.faults {
		if len(f.Marker) == 0 {
			continue
		}
		for i, end := range offsets[1:] {
			if bytes.Contains(rows[offsets[i]:end], f.Marker) {
				return f.Marker
			}
		}
	}
	return nil
}
