package streams

import (
	"time"

	"millrace/internal/device"
)

// Stage is one step in the processing of a batch by a pipeline.
type Stage uint8

// The stages in the order in which a batch passes them. Metrics use the same names.
const (
	Fill    Stage = iota // payloads are copied into the pinned buffer
	CopyIn               // copy from host to device
	Compute              // the operators' kernels run
	CopyOut              // copy from device to host
	NumStages
)

func (s Stage) String() string {
	return [...]string{"fill", "copy_in", "compute", "copy_out"}[s]
}

// Engine is a part of the device that works independently of the other engines.
type Engine uint8

const (
	CopyInEngine Engine = iota
	ComputeEngine
	CopyOutEngine
	NumEngines
)

func (e Engine) String() string {
	return [...]string{"copy_in", "compute", "copy_out"}[e]
}

// Span is an interval on the device's clock, measured from the device's epoch.
type Span struct {
	Start, End time.Duration
}

// Duration returns the length of the span.
func (s Span) Duration() time.Duration { return s.End - s.Start }

// CloseReason is the reason why a batch stopped filling.
type CloseReason uint8

// The close reasons. Metrics use the same names.
const (
	ClosedByBytes  CloseReason = iota // the next payload would not fit, or the byte bound was reached
	ClosedByCount                     // the payload bound was reached
	ClosedByLinger                    // the oldest payload had waited for the linger time, or the lane was idle
	ClosedByDrain                     // the worker is stopping
	NumCloseReasons
)

func (c CloseReason) String() string {
	return [...]string{"bytes", "count", "linger", "drain"}[c]
}

// Record describes one batch of a pipeline.
type Record struct {
	Device      string // device.Info.ID
	Batch       uint64 // batch number on the pipeline, from 1
	Lane        int
	Payloads    int
	Bytes       int // total size of the payloads
	ResultBytes int // total size of the result records
	Scratch     int // bytes of scratch used
	Closed      CloseReason
	InPlace     bool // whether the kernels worked on host memory, without copies

	// Stages holds the span of each stage on the device's clock. No stage starts before the previous stage ended. The
	// three device stages come from device events. A copy starts when its stream reaches it or when its engine finishes
	// the previous copy, whichever is later. Compute starts when its stream reaches it. For a batch in place, compute
	// starts when the host enqueues it or when the previous batch on its lane ends, whichever is later. Compute stages
	// of different lanes may overlap, and each includes waits for the kernels of other lanes. A stage is the zero Span
	// if it did not happen, or if a lost device could not report its times.
	Stages [NumStages]Span

	// Err is the error of the batch, or nil if the results were valid.
	Err error
}

// Observer receives the events of a pipeline. Calls are never concurrent. Methods must not block.
type Observer interface {
	// DeviceError reports that a device call failed. kind is a result of device.Kind, or KindProbe.
	DeviceError(deviceID, kind string)
}

// Stats is the state of a pipeline. The times of engines lag, because they exclude the time in which a batch in flight
// may still add a stage. Overlap <= Busy <= Counted <= Uptime always holds.
type Stats struct {
	Device     string // device.Info.ID
	Lanes      LaneCounts
	Pinned     int64 // pinned host memory held, in bytes
	Pageable   int64 // host memory held that could not be pinned, in bytes
	Scratch    ScratchStats
	Engines    [NumEngines]time.Duration // busy time of each engine since the start
	Busy       time.Duration             // time in which any engine was busy
	Overlap    time.Duration             // time in which two or more engines were busy
	Counted    time.Duration             // part of Uptime that Engines, Busy and Overlap cover
	Uptime     time.Duration             // time on the device's clock since the pipeline was created
	HostWaited time.Duration             // time that submissions waited for stages (see Schedule.HostWaits)
	InHand     int                       // batches acquired and not yet released
}

// LaneCounts holds the number of lanes in each state.
type LaneCounts struct {
	Free     int // lanes with no batch filling or on the device
	Filling  int // lanes with a batch filling and no batch on the device
	InFlight int // lanes with a batch on the device
}

// ScratchStats holds the counters of the scratch pool.
type ScratchStats struct {
	Used, Reserved, HighWater int64         // bytes
	Limit                     int64         // the configured limit, in bytes
	Allocations               uint64        // successful allocations since the start
	Failures                  uint64        // allocations refused for lack of memory
	HostTime                  time.Duration // host time spent in allocating and freeing
}

// Stats returns the pipeline's current state. If the device can't report the pool's counters, because the pipeline is
// closed or the device is lost or hung, Stats also returns an error. All other fields are valid even with an error.
func (p *Pipeline) Stats() (Stats, error) {
	s := Stats{Device: p.info.ID, Pinned: p.slab.pinned(), Pageable: p.slab.pageable()}
	s.Scratch.Limit = p.o.ScratchLimit
	s.Scratch.Allocations, s.Scratch.Failures = p.scratch.Allocations(), p.scratch.Refused()
	s.Scratch.HostTime, s.HostWaited = p.scratch.HostTime(), time.Duration(p.hostWaited.Load())
	pool, err := device.PoolStats{}, p.Hung() // don't query a hung device
	if err == nil {
		pool, err = p.scratch.Stats()
	}
	s.Scratch.Used, s.Scratch.Reserved, s.Scratch.HighWater = pool.Used, pool.Reserved, pool.UsedHigh

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		switch l.state() {
		case inFlight:
			s.Lanes.InFlight++
		case filling:
			s.Lanes.Filling++
		default:
			s.Lanes.Free++
		}
	}
	now := p.dev.Now()
	p.countUntil(now)
	s.Engines, s.Busy, s.Overlap = p.activity.busy, p.activity.any, p.activity.several
	s.Counted = max(p.activity.horizon-p.started, s.Busy)
	s.Uptime = max(now-p.started, s.Counted) // the clocks of host and device differ slightly
	s.InHand = p.inHand
	return s, err
}

// ScratchInstead returns the error with which the device refused to create a memory pool, or nil if it has pools. After
// such an error, scratch is preallocated.
func (p *Pipeline) ScratchInstead() error { return p.scratch.Instead() }
