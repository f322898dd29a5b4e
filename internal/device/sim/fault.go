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
	// when that launch ends; At and Marker are other triggers. Losses by a launch are ErrKernelFault, those At a time
	// are no kernel's.
	DeviceLoss

	// LateCompletion: a completion comes Delay after its stream got there, and the stream goes on
	// meanwhile. Nth counts calls of Stream.Notify.
	LateCompletion

	// LostCompletion: a completion never comes, though the device is well. Nth counts calls of
	// Stream.Notify.
	LostCompletion
)

func (k FaultKind) String() string {
	switch k {
	case OutOfMemory:
		return "out of memory"
	case PinnedOutOfMemory:
		return "pinned out of memory"
	case LaunchFailure:
		return "launch failure"
	case DeviceLoss:
		return "device loss"
	case LateCompletion:
		return "late completion"
	case LostCompletion:
		return "lost completion"
	}
	return "unknown"
}

// Fault is a failure to inject. It has one trigger: Nth, Probability, At or Marker. Calls are counted
// over the whole device, from 1, and calls with bad arguments do not count.
type Fault struct {
	Kind FaultKind

	Nth         int           // the call that fails
	Probability float64       // each call fails with this probability, drawn from Options.Seed
	At          time.Duration // DeviceLoss: the virtual time of the loss, before anything that ends then
	Marker      []byte        // DeviceLoss: a launch fails that has a row with these bytes in it

	Delay time.Duration // LateCompletion: how late
}

// check returns why the fault makes no sense, nil if it does.
func (f Fault) check() error {
	triggers := 0
	for _, set := range []bool{f.Nth != 0, f.Probability != 0, f.At != 0, len(f.Marker) > 0} {
		if set {
			triggers++
		}
	}
	switch {
	case f.Kind < OutOfMemory || f.Kind > LostCompletion:
		return fmt.Errorf("kind %d is not known", f.Kind)
	case triggers != 1:
		return fmt.Errorf("has %d triggers: set one of Nth, Probability, At and Marker", triggers)
	case f.Nth < 0 || f.At < 0 || !(f.Probability >= 0 && f.Probability <= 1):
		return errors.New("Nth and At must be more than 0, Probability at most 1")
	case f.Kind != DeviceLoss && f.Nth == 0 && f.Probability == 0:
		return errors.New("At and Marker are triggers of a device loss alone")
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

// lossBy returns the first loss that is due at a time up to until.
func lossBy(faults []Fault, until time.Duration) (Fault, bool) {
	var first Fault
	for _, f := range faults {
		if f.At > 0 && f.At <= until && (first.At == 0 || f.At < first.At) {
			first = f
		}
	}
	return first, first.At > 0
}
