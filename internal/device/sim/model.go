package sim

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// Cost is the duration of an operation: Latency, plus the operation's bytes divided by BytesPerSecond.
type Cost struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0 means that the size doesn't matter
}

// Model sets the durations of operations. A launch has the bytes of its rows. With the zero Model, operations take no
// time.
type Model struct {
	CopyIn  Cost
	CopyOut Cost
	Fill    Cost // runs on the compute engine, as on a GPU
	Kernel  Cost

	// Jitter extends each operation by a fraction of its duration, drawn uniformly from [0, Jitter). The fraction
	// depends on the seed and on the operation's position in the sequence of calls. 0 means no jitter, and the maximum
	// is 1.
	Jitter float64

	// ComputeSlots is the number of launches and fills that run concurrently, each at full speed. 0 means 1.
	ComputeSlots int
}

// Units returns the model of textbook plans. A copy in, a launch and a copy out of any size each take one unit. A fill
// takes no time.
func Units(unit time.Duration) Model {
	stage := Cost{Latency: unit}
	return Model{CopyIn: stage, CopyOut: stage, Kernel: stage}
}

// duration returns the duration of o. Jitter depends on o's sequence number, not on the order of execution.
func (m Model) duration(o *software.Op, seed uint64) time.Duration {
	var c Cost
	switch o.Kind {
	case software.CopyIn:
		c = m.CopyIn
	case software.CopyOut:
		c = m.CopyOut
	case software.Fill:
		c = m.Fill
	case software.Launch:
		c = m.Kernel
	}
	t := float64(c.Latency)
	if c.BytesPerSecond > 0 {
		t += float64(o.Bytes) / c.BytesPerSecond * float64(time.Second)
	}
	t *= 1 + m.Jitter*draw(seed, 0, o.Seq)
	return time.Duration(math.Round(min(t, float64(longest))))
}

// longest is the maximum duration of one operation, so that sums of durations don't overflow.
const longest = 24 * time.Hour

// draw returns a number in [0, 1) that depends only on its arguments. It is one output of splitmix64 (Steele, Lea,
// Flood: Fast splittable pseudorandom number generators, 2014). Each purpose has a separate sequence, and n is the
// index in that sequence.
func draw(seed, purpose, n uint64) float64 {
	const golden = 0x9e3779b97f4a7c15
	mix := func(z uint64) uint64 {
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	z := mix(mix(seed+golden*(purpose+1)) + golden*n)
	return float64(z>>11) / (1 << 53)
}

// FaultKind is the kind of failure to inject.
type FaultKind uint8

const (
	// OutOfMemory makes an allocation from a pool fail with ErrOutOfMemory. Nth counts calls of Pool.Alloc.
	OutOfMemory FaultKind = iota + 1

	// PinnedOutOfMemory makes AllocHost fail with ErrOutOfMemory. Nth counts calls of AllocHost.
	PinnedOutOfMemory

	// LaunchFailure makes a launch fail with ErrLaunch. The device still works. Nth counts calls of Stream.Launch.
	LaunchFailure

	// DeviceLoss makes the device report a permanent loss (ErrKernelFault) when a launch ends. Nth counts calls of
	// Stream.Launch. The trigger may also be Marker.
	DeviceLoss

	// LateCompletion delays a completion by Delay after its stream has reached the notification. The stream doesn't
	// wait for the completion. Nth counts calls of Stream.Notify.
	LateCompletion

	// LostCompletion suppresses a completion, although the device works. Nth counts calls of Stream.Notify.
	LostCompletion
)

// Fault is a failure to inject. It has one trigger: Nth, Probability or Marker. Calls are counted from 1 over the whole
// device. Calls with invalid arguments are not counted.
type Fault struct {
	Kind FaultKind

	Nth         int     // number of the call that fails
	Probability float64 // probability that a call fails, drawn from Options.Seed
	Marker      []byte  // for DeviceLoss only; launches with a row that contains these bytes fail

	Delay time.Duration // delay of a LateCompletion
}

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

// counts holds the numbers of calls so far, for Fault.Nth.
type counts struct {
	poolAllocs, hostAllocs, launches, notifies uint64
}

// match returns the first fault of the given kind that applies to call number n, or nil.
func (l *loop) match(kind FaultKind, n uint64) *Fault {
	for i := range l.faults {
		f := &l.faults[i]
		if f.Kind == kind && (uint64(f.Nth) == n || draw(l.seed, uint64(i)+1, n) < f.Probability) {
			return f
		}
	}
	return nil
}

// inject counts a call and returns the error to inject, or nil (see software.Options.Inject).
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

// plan selects the fault, if any, of a launch or a notification that was just enqueued.
func (l *loop) plan(t *task) {
	switch t.Kind {
	case software.Launch:
		t.fault = l.match(DeviceLoss, l.counts.launches)
	case software.Notify:
		l.counts.notifies++
		if t.fault = l.match(LostCompletion, l.counts.notifies); t.fault == nil {
			t.fault = l.match(LateCompletion, l.counts.notifies)
		}
	}
}

// do applies the effect of an operation that ends, or its fault. If do returns an error, the caller must mark the
// device as lost.
func (l *loop) do(t *task) error {
	switch {
	case t.Kind == software.Launch && t.fault != nil:
		return errors.New("injected loss")
	case t.Kind == software.Notify && t.fault == nil:
		l.dev.Complete(t.Token)
	case t.Kind == software.Notify && t.fault.Kind == LateCompletion:
		l.queued++
		heap.Push(&l.running, &task{seq: t.seq, due: l.now + t.fault.Delay, late: true, token: t.Token})
	}
	return t.Do()
}

// withMarkers makes operators fail on rows that contain the marker of a fault.
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
