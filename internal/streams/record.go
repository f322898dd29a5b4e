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
	CopyIn               // host to device
	Compute              // the operators' kernels
	CopyOut              // device to host
	NumStages
)

func (s Stage) String() string {
	return [...]string{"fill", "copy_in", "compute", "copy_out"}[s]
}

// Engine is a part of the device that works independently of the others.
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
	ClosedByLinger                    // the oldest payload had waited for the linger, or the lane was idle
	ClosedByDrain                     // the worker is stopping
	NumCloseReasons
)

func (c CloseReason) String() string {
	return [...]string{"bytes", "count", "linger", "drain"}[c]
}

// Record describes a batch of a pipeline.
type Record struct {
	Device      string // device.Info.ID
	Batch       uint64 // batch number on the pipeline, from 1
	Lane        int
	Payloads    int
	Bytes       int // total size of the payloads
	ResultBytes int // total size of the result records
	Scratch     int // bytes of scratch that it used
	Closed      CloseReason
	InPlace     bool // the kernels worked on host memory, so nothing was copied

	// Stages holds when each stage ran, on the device's clock. The stages are in order: none starts before the previous
	// one ended. The three device stages come from device events. A copy starts when its stream reached it or when its
	// engine finished the previous copy, whichever is later. Compute starts when its stream reached it or, for a batch
	// in place, when the host enqueued it or the previous batch on its lane ended. Kernels of several lanes share the
	// multiprocessors, so a compute stage includes the time that it waited for the kernels of other lanes, and the
	// compute stages of different lanes overlap. A stage that did not happen is the zero Span, and so is one whose
	// times a lost device could not report.
	Stages [NumStages]Span

	// Err is nil if the results were valid.
	Err error
}

// Observer receives the events of a pipeline. A pipeline makes one call at a time. Methods must not block.
type Observer interface {
	// DeviceError reports that a device call failed. The kind is one that device.Kind returns, or KindProbe.
	DeviceError(deviceID, kind string)
}

// Stats is the state of a pipeline at one moment. Reading it makes no call to the hardware except for the pool's
// counters. Engine times cover only the time before which no stage can still arrive, so they lag by the batches in
// flight. Overlap <= Busy <= Counted <= Uptime always holds.
type Stats struct {
	Device     string // device.Info.ID
	Lanes      LaneCounts
	Pinned     int64 // pinned host memory held, in bytes
	Pageable   int64 // host memory held that could not be pinned, in bytes
	Scratch    ScratchStats
	Engines    [NumEngines]time.Duration // how long each engine has been busy since the start
	Busy       time.Duration             // how long any engine was busy
	Overlap    time.Duration             // how long two or more engines were busy at once
	Counted    time.Duration             // the part of Uptime that Engines, Busy and Overlap cover: until the oldest batch in flight was submitted
	Uptime     time.Duration             // time on the device's clock since the pipeline was created
	HostWaited time.Duration             // how long submissions waited for stages (see Schedule.HostWaits)
	InHand     int                       // batches acquired and not yet released
	Progress   time.Time                 // when a batch last changed its state
}

// LaneCounts holds the number of lanes in each state.
type LaneCounts struct {
	Free     int // nothing is filling or on the device; results may still be read
	Filling  int // a batch is filling and none is on the device
	InFlight int // a batch is on the device
}

// ScratchStats holds the scratch pool's counters.
type ScratchStats struct {
	Used, Reserved, HighWater int64         // bytes
	Limit                     int64         // the configured limit, in bytes
	Allocations               uint64        // successful allocations since the start
	Failures                  uint64        // allocations refused for lack of memory
	HostTime                  time.Duration // host time spent in allocating and freeing
}

// Stats returns the pipeline's current state. It returns an error if the device can't report its pool's counters
// because the pipeline is closed or the device is lost. The other fields are valid even then.
func (p *Pipeline) Stats() (Stats, error) {
	s := Stats{Device: p.info.ID, Pinned: p.slab.Pinned(), Pageable: p.slab.Pageable()}
	s.Scratch.Limit = p.cfg.ScratchLimit
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
	s.InHand, s.Progress = p.inHand, p.progress
	return s, err
}

// ScratchInstead returns why scratch is preallocated: the device has no pools. It returns nil if scratch comes from a
// pool.
func (p *Pipeline) ScratchInstead() error { return p.scratch.Instead() }

// Progress returns when a batch last changed its state.
func (p *Pipeline) Progress() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress
}
