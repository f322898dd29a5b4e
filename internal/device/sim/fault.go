package sim

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	// OutOfMemory: an allocation from a pool fails with ErrOutOfMemory. Nth counts calls of Pool.Alloc.
	OutOfMemory FaultKind = iota + 1

	// PinnedOutOfMemory: AllocHost fails with ErrOutOfMemory. Nth counts calls of AllocHost.
	PinnedOutOfMemory

	// LaunchFailure: a launch is refused with ErrLaunch, the device stays well. Nth counts calls of
	// Stream.Launch.
	LaunchFailure

	// DeviceLoss: the device is lost, for good. Nth counts calls of Stream.Launch, and the loss happens
	// when that launch ends; Marker is another trigger. The losses are ErrKernelFault.
	DeviceLoss

	// LateCompletion: a completion comes Delay after its stream got there, and the stream goes on
	// meanwhile. Nth counts calls of Stream.Notify.
	LateCompletion

	// LostCompletion: a completion never comes, though the device is well. Nth counts calls of
	// Stream.Notify.
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

// Fault is a failure to inject. It has one trigger: Nth, Probability or Marker. Calls are counted
// over the whole device, from 1, and calls with bad arguments do not count.
type Fault struct {
	Kind FaultKind

	Nth         int     // the call that fails
	Probability float64 // each call fails with this probability, drawn from Options.Seed
	Marker      []byte  // DeviceLoss: a launch fails that has a row with these bytes in it

	Delay time.Duration // LateCompletion: how late
}

// check returns why the fault makes no sense, nil if it does.
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

// counts are the calls that Fault.Nth counts.
type counts struct {
	poolAllocs, hostAllocs, launches, notifies uint64
}

// match returns the first fault of that kind that befalls the nth call.
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

// injected counts a call and reports whether a fault of that kind befalls it.
func (d *Device) injected(kind FaultKind, calls *uint64) bool {
	*calls++
	_, ok := d.match(kind, *calls)
	return ok
}

// marker returns the marker of a device loss that a row holds, nil if none does.
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
