package streams

import "time"

// Stage is one step of a batch's way.
type Stage uint8

// The stages in the order a batch passes them. The names are those of the metrics.
const (
	Fill    Stage = iota // payloads are packed into the pinned buffer
	CopyIn               // host to device
	Compute              // the operators' kernels
	CopyOut              // device to host
	Publish              // results go to the broker and are stored
	Settle               // inputs are acknowledged
	NumStages
)

func (s Stage) String() string {
	return [...]string{"fill", "copy_in", "compute", "copy_out", "publish", "settle"}[s]
}

// Engine is a part of the device that works by itself.
type Engine uint8

// The engines.
const (
	CopyInEngine Engine = iota
	ComputeEngine
	CopyOutEngine
	NumEngines
)

func (e Engine) String() string {
	return [...]string{"copy_in", "compute", "copy_out"}[e]
}

// Span is an interval on the device's clock, measured from its epoch.
type Span struct {
	Start, End time.Duration
}

// Duration is the span's length.
func (s Span) Duration() time.Duration { return s.End - s.Start }

// CloseReason says why a batch stopped filling.
type CloseReason uint8

// The reasons. The names are those of the metrics.
const (
	ClosedByBytes  CloseReason = iota // the next payload would not fit, or the byte bound was reached
	ClosedByCount                     // the payload bound was reached
	ClosedByLinger                    // its oldest payload had waited long enough: the linger, or nothing at all on an idle lane
	ClosedByDrain                     // the worker is stopping
	NumCloseReasons
)

func (r CloseReason) String() string {
	return [...]string{"bytes", "count", "linger", "drain"}[r]
}

// Record is what a batch leaves in the timeline.
type Record struct {
	Device      string // device.Info.ID
	Batch       uint64 // number of the batch on its pipeline, from 1
	Lane        int
	Payloads    int
	Bytes       int // of the payloads
	ResultBytes int // of the result records copied out
	Scratch     int // bytes of scratch it took
	Closed      CloseReason
	InPlace     bool // the kernels worked on host memory, so there were no copies

	// Stages holds when each stage ran, on the device's clock, in order: none starts before the one before
	// it ended. The three device stages come from device events. A copy starts when its stream reached it or
	// when its engine was done with the copy before, whichever is later. Compute starts when its stream
	// reached it, that of a batch in place when the host enqueued it or the batch before it on its lane was done:
	// kernels of several lanes share the multiprocessors, so a stretch in which one waited for
	// others' is part of it, and compute stages of batches on different lanes overlap. A stage that did not
	// happen, or whose times a lost device did not tell any more, is the zero Span.
	Stages [NumStages]Span

	// Err is nil for a batch whose results were valid.
	Err error
}

// Observer is told what a pipeline does. Calls come one at a time for each pipeline, must not block, and
// must not keep the Record.
type Observer interface {
	// BatchDone: a batch is finished and all its stages are in the record.
	BatchDone(*Record)
	// DeviceError: a call to the device failed; kind as device.Kind names it.
	DeviceError(deviceID, kind string)
}

// Stats is a pipeline's state at one moment. Reading it makes no call to the hardware but the pool's
// counters. The times of engines are added up to a moment before which nothing can be reported any more, so
// they lag behind by the batches in flight; Overlap <= Busy <= Uptime always holds.
type Stats struct {
	Device     string // device.Info.ID
	Lanes      LaneCounts
	Pinned     int64 // bytes of pinned host memory held
	Pageable   int64 // bytes of host memory held that could not be pinned
	Scratch    ScratchStats
	Engines    [NumEngines]time.Duration // time each engine has been busy since the start
	Busy       time.Duration             // time that any engine was busy
	Overlap    time.Duration             // time that two engines or more were busy at once
	Uptime     time.Duration             // device clock since the pipeline was made
	HostWaited time.Duration             // time that submissions waited for stages (see Schedule.HostWaits)
	InHand     int                       // batches acquired and not yet released
	Progress   time.Time                 // when a batch last moved on
}

// LaneCounts counts lanes by what they do.
type LaneCounts struct {
	Free     int // nothing fills and nothing is on the device; results may still be read
	Filling  int // a buffer fills and nothing is on the device
	InFlight int // a batch is on the device
}

// ScratchStats are the scratch pool's counters.
type ScratchStats struct {
	Used, Reserved, HighWater int64         // bytes
	Limit                     int64         // bytes; the configured cap
	Allocations               uint64        // successful, since the start
	Failures                  uint64        // refused for want of memory
	HostTime                  time.Duration // that submissions spent in allocating and freeing
}
