package sim

import (
	"slices"
	"time"

	"millrace/internal/device/software"
)

// Engine is the part of the device that serves an operation.
type Engine uint8

// The engines. Operations of NoEngine only order others.
const (
	NoEngine Engine = iota
	CopyInEngine
	ComputeEngine
	CopyOutEngine
	engineCount
)

func (e Engine) String() string {
	return [...]string{"none", "copy in", "compute", "copy out"}[e]
}

// Kind is the kind of an operation.
type Kind = software.Kind

// The kinds of operations, each named after the call that enqueues it.
const (
	CopyIn  = software.CopyIn
	CopyOut = software.CopyOut
	Fill    = software.Fill
	Launch  = software.Launch
	Record  = software.Record
	Wait    = software.Wait
	Notify  = software.Notify
	Free    = software.Free
	Gate    = software.Gate
)

// engineOf returns the engine that serves operations of kind k.
func engineOf(k Kind) Engine {
	switch k {
	case CopyIn:
		return CopyInEngine
	case CopyOut:
		return CopyOutEngine
	case Fill, Launch:
		return ComputeEngine
	}
	return NoEngine
}

// Span is one operation that the device has carried out. Times are on the scale of Device.Now.
type Span struct {
	Seq      uint64 // place in the sequence of enqueueing calls, from 1
	Kind     Kind
	Engine   Engine
	Stream   string
	Kernel   string // the operator of a launch; empty for other kinds
	Bytes    int    // bytes moved, filled, or in the rows of a launch; of the allocation for a free
	Enqueued time.Duration
	Start    time.Duration // when an engine started it; for NoEngine, when its stream reached it
	End      time.Duration
}

// trace keeps the first limit spans.
type trace struct {
	limit   int
	spans   []Span
	dropped int64
}

func (t *trace) add(o *task, end time.Duration) {
	if len(t.spans) >= t.limit {
		t.dropped++
		return
	}
	s := Span{
		Seq: o.Seq, Kind: o.Kind, Engine: engineOf(o.Kind), Stream: o.Stream.Name(),
		Bytes: o.Bytes, Enqueued: o.enqueued, Start: o.start, End: end,
	}
	if o.Kernel != nil {
		s.Kernel = o.Kernel.Name()
	}
	t.spans = append(t.spans, s)
}

// Trace returns the operations that the device has carried out so far, in the order in which they ended, and the number
// of spans that it dropped (see Options.TraceLimit).
func (d *Device) Trace() (spans []Span, dropped int64) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return slices.Clone(d.loop.trace.spans), d.loop.trace.dropped
}
