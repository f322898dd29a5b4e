package sim

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"time"

	"millrace/internal/device"
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

// match returns the first fault of that kind that applies to the nth call, or nil.
func (l *loop) match(kind FaultKind, n uint64) *Fault {
	for i := range l.faults {
		f := &l.faults[i]
		if f.Kind == kind && (uint64(f.Nth) == n || draw(l.seed, uint64(i)+1, n) < f.Probability) {
			return f
		}
	}
	return nil
}

// inject counts a call and returns the error with which it must fail: see software.Config.
func (l *loop) inject(call string) error {
	switch call {
	case "alloc host":
		return l.refuse(call, PinnedOutOfMemory, &l.counts.hostAllocs, device.ErrOutOfMemory)
	case "pool alloc":
		return l.refuse(call, OutOfMemory, &l.counts.poolAllocs, device.ErrOutOfMemory)
	case "launch":
		return l.refuse(call, LaunchFailure, &l.counts.launches, device.ErrLaunch)
	}
	return nil
}

func (l *loop) refuse(call string, kind FaultKind, calls *uint64, as error) error {
	*calls++
	if l.match(kind, *calls) == nil {
		return nil
	}
	return device.Errorf(call, l.dev.Info().ID, as, "injected")
}

// plan sets the fault of a launch or a notification that was just enqueued.
func (l *loop) plan(t *task) {
	switch t.Kind {
	case Launch:
		t.fault = l.match(DeviceLoss, l.counts.launches)
	case Notify:
		l.counts.notifies++
		if t.fault = l.match(LostCompletion, l.counts.notifies); t.fault == nil {
			t.fault = l.match(LateCompletion, l.counts.notifies)
		}
	}
}

// do applies the effect of an operation that ends, or its fault. An error loses the device.
func (l *loop) do(t *task) error {
	switch {
	case t.Kind == Launch && t.fault != nil:
		return errors.New("injected loss")
	case t.Kind == Notify && t.fault == nil:
		l.dev.Complete(t.Token)
	case t.Kind == Notify && t.fault.Kind == LateCompletion:
		l.queued++
		heap.Push(&l.running, &task{seq: t.seq, due: l.now + t.fault.Delay, late: true, token: t.Token})
	}
	return t.Do()
}

// withMarkers makes operators fail if a row contains the marker of a fault.
func withMarkers(kernels []device.HostKernel, faults []Fault) (all []device.HostKernel) {
	for _, k := range kernels {
		for _, f := range faults {
			if len(f.Marker) > 0 {
				k = marked{k, f.Marker}
			}
		}
		all = append(all, k)
	}
	return all
}

type marked struct {
	device.HostKernel
	marker []byte
}

// Bind implements device.HostKernel.
func (m marked) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := m.HostKernel.Bind(params)
	return boundMarked{bound, m.marker}, err
}

type boundMarked struct {
	device.BoundHostKernel
	marker []byte
}

// Run implements device.BoundHostKernel.
func (b boundMarked) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	for i, end := range offsets[1:] {
		if bytes.Contains(rows[offsets[i]:end], b.marker) {
			return fmt.Errorf("injected loss: a row holds the marker %q", b.marker)
		}
	}
	return b.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
