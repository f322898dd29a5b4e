// Package streams runs batches of payloads on a device. A Pipeline keeps several batches in flight, so that the copy
// in, the kernels and the copy out of different batches overlap. It records the time of each stage of each batch.
//
// The worker (internal/ingest), the benchmarks (internal/bench) and the planner (internal/plan) use this package. The
// package depends neither on NATS nor on the kind of device.
//
// A caller acquires a batch, appends payloads, submits the batch, receives it from Pipeline.Completed, reads its
// results, and releases it. See the example of Pipeline. To read the code, start with this file (the caller's side), then
// submit.go (work on the device), lane.go (states and completion), place.go (times) and schedule.go.
package streams

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// ErrClosed is the error of a pipeline that has been closed.
var ErrClosed = errors.New("streams: pipeline closed")

// Pipeline runs batches on one device. Its methods are safe for concurrent use.
type Pipeline struct {
	dev      device.Device
	info     device.Info
	o        Options
	schedule Schedule
	kernels  []device.Kernel
	slab     *slab
	scratch  *ScratchPool
	lanes    []*lane
	shared   route           // streams that lanes share, one per engine; zero in StreamPerLane
	sharing  sync.Mutex      // keeps the work of two batches from interleaving on the shared streams
	streams  []device.Stream // all streams, for Close
	slots    []*Batch        // indexed by Batch.Slot
	started  time.Duration

	freeSlots     chan struct{}   // one token per free batch
	completed     chan *Batch     // has capacity for every slot, so sending never blocks
	toPoll        chan polled     // batches whose event must be polled; has capacity for every slot
	pendingQueues []device.Stream // queues whose oldest batch is incomplete; used by sweep only
	stop          context.CancelFunc
	goroutines    sync.WaitGroup // goroutines that complete batches
	pollers       sync.WaitGroup // submissions that poll for the completion of their batch
	over          chan struct{}  // closed when the pipeline stops accepting batches
	stuck         chan struct{}  // closed when the device is found to hang

	mu       sync.Mutex
	changed  *sync.Cond // signals that a batch completed or was released, or that the pipeline is over
	err      error      // error that ended the pipeline, or nil
	endedAt  time.Time  // time at which the device was lost; zero if it wasn't lost
	number   uint64     // number of batches acquired so far
	inHand   int        // batches acquired and not released
	inFlight int
	starved  int    // submissions that wait for scratch
	ended    uint64 // number of batches in flight that completed, failed or were withdrawn
	lone     *Batch // batch that is computed in steps, alone on the device; or nil
	closed   bool
	hung     error                   // error of a hung device, or nil
	ran      time.Duration           // time that the process has run, as measured by watchDeadlines
	calls    map[*stateCall]struct{} // calls of states in progress
	usual    usualTimes

	engineFree [NumEngines]time.Duration // end of each engine's latest work in the timeline
	activity   activity

	untimed []*Batch   // completed batches with unread timestamps, in order of completion; guarded by mu
	timing  sync.Mutex // held while timestamps are read
	copies  []copyIn   // copies in that may have ended (see place.go); guarded by timing
	behind  uint64     // counterpart of lane.behind for the shared copy-in stream; guarded by timing

	known func() *known // returns the payloads and expected results of probes, computed once

	ranger     device.Ranger // nil if ranges are off
	hostWaited atomic.Int64  // nanoseconds

	closing   sync.Once
	observing sync.Mutex
}

// Slots returns the number of batches in all states.
func (p *Pipeline) Slots() int { return len(p.slots) }

// Lanes returns the number of lanes.
func (p *Pipeline) Lanes() int { return len(p.lanes) }

// Device returns the description of the pipeline's device.
func (p *Pipeline) Device() device.Info { return p.info }

// BatchBytes returns the maximum payload bytes of a batch, which also limits the size of a payload.
func (p *Pipeline) BatchBytes() int { return p.o.BatchBytes }

// BatchPayloads returns the maximum number of payloads in a batch.
func (p *Pipeline) BatchPayloads() int { return p.o.BatchPayloads }

// Now returns the time on the device's clock, which all records use.
func (p *Pipeline) Now() time.Duration { return p.dev.Now() }

// Epoch returns the wall-clock time at which the device's clock read zero.
func (p *Pipeline) Epoch() time.Time { return p.dev.Epoch() }

// Completed returns the channel that receives submitted batches with their results or an error, in the order in which
// the device finished them. The receiver must release each batch. The channel is never closed.
func (p *Pipeline) Completed() <-chan *Batch { return p.completed }

// Over returns a channel that is closed when the device is lost or the pipeline is closed. Err returns the reason. The
// Observer receives the error of a lost device before the channel is closed.
func (p *Pipeline) Over() <-chan struct{} { return p.over }

// Err returns the error that ended the pipeline: ErrClosed or an error that wraps device.ErrLost. It returns nil while
// the pipeline works.
func (p *Pipeline) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// LostAt returns the time at which the device was lost, or the zero time if it wasn't lost.
func (p *Pipeline) LostAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedAt
}

// Acquire returns an empty batch, on an idle lane if possible. It waits until a batch is free, ctx is done, or the
// pipeline is over. The caller owns the batch until Submit or Release.
func (p *Pipeline) Acquire(ctx context.Context) (*Batch, error) {
	if err := p.Reserve(ctx); err != nil {
		return nil, err
	}
	return p.Take()
}

// Reserve waits like Acquire and reserves a free batch. The caller must then call Take or Unreserve. A caller with
// several pipelines reserves before it chooses the work, so that the work goes to a pipeline with a free batch.
func (p *Pipeline) Reserve(ctx context.Context) error {
	select {
	case <-p.freeSlots:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.over:
		return p.Err()
	}
}

// Unreserve gives up a reservation.
func (p *Pipeline) Unreserve() { p.freeSlots <- struct{}{} }

// Take returns the reserved batch without waiting. If the pipeline is over, Take gives up the reservation and returns
// Err's error.
func (p *Pipeline) Take() (*Batch, error) { return p.take(nil) }

// take implements Take. With a non-nil probe, it takes a batch for that probe, which gets no batch number.
func (p *Pipeline) take(probe *probing) (*Batch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.freeSlots <- struct{}{}
		return nil, p.err
	}
	b := p.pick()
	b.lane.move(b, filling)
	p.inHand++
	b.probe, b.copies = probe, false
	if probe != nil {
		b.reset(0)
		return b, nil
	}
	p.number++
	b.reset(p.number)
	return b, nil
}

// pick chooses a free batch on the lane with the fewest batches in use. Ties go round robin. The caller's token from
// freeSlots guarantees a free batch.
func (p *Pipeline) pick() *Batch {
	var best *Batch
	bestBusy := 0
	for i := range p.lanes {
		l := p.lanes[(int(p.number)+i)%len(p.lanes)]
		busy, candidate := 0, (*Batch)(nil)
		for _, b := range l.batches {
			if b.phase == free {
				candidate = b
			} else {
				busy++
			}
		}
		if candidate != nil && (best == nil || busy < bestBusy) {
			best, bestBusy = candidate, busy
		}
	}
	if best == nil {
		panic("streams: no free batch although one was reserved")
	}
	return best
}

// Release returns the buffers of a completed or never submitted batch to the pipeline. The caller must not use the
// batch or its Record afterwards.
func (b *Batch) Release() {
	p := b.pipe
	p.timeUpTo(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.lane.move(b, free)
	b.Owner, b.stepping, b.stepped, b.stepsEnd = nil, false, false, nil
	p.inHand--
	p.changed.Broadcast()
	p.freeSlots <- struct{}{} // the channel has capacity for every batch, so the send never blocks
}

// Again turns a completed batch into a filling batch with the same payloads, as if they had just been appended. It
// discards the results.
func (b *Batch) Again() {
	p := b.pipe
	p.timeUpTo(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.lane.move(b, filling)
	p.number++
	b.record = Record{Device: p.info.ID, Batch: p.number, Lane: b.lane.index}
	b.record.Stages[Fill].Start = p.dev.Now()
}

// Ended reports whether err means that a pipeline has ended. A pipeline ends when its device is lost, or when the
// pipeline or the device is closed.
func Ended(err error) bool {
	return errors.Is(err, device.ErrLost) || errors.Is(err, ErrClosed) || errors.Is(err, device.ErrClosed)
}

// ErrEmpty is the error of Submit for a batch without payloads.
var ErrEmpty = errors.New("streams: batch has no payloads")

// tableAlign is the alignment of the offsets table in bytes. The table follows the payload bytes.
const tableAlign = 16

// Batch is a set of payloads in a lane's buffers. The caller owns it from Acquire to Submit and from completion to
// Release, and the pipeline owns it in between. Only one goroutine may use it at a time.
//
// A batch is ragged. The payloads' bytes lie back to back in one pinned region. A table of Rows()+1 little-endian
// uint32 offsets follows, aligned to 16 bytes. One copy moves the whole region.
type Batch struct {
	Owner any // the caller's object that the batch belongs to; Release clears it

	pipe  *Pipeline
	lane  *lane
	slot  int
	phase phase // changed only by lane.move; guarded by Pipeline.mu

	submitting bool   // whether Submit may still fail for the batch in flight; guarded by Pipeline.mu
	token      uint64 // identifies the current or latest submission; guarded by Pipeline.mu
	copied     bool   // whether the time of the copy in has been added to the timeline; guarded by Pipeline.mu
	untimed    bool   // whether the batch has completed with timestamps not yet read; guarded by Pipeline.mu

	in, out       device.HostBuffer
	input, result device.Memory // device copies of in and out
	offsets       []uint32      // rows+1 entries; capacity is BatchPayloads+1
	bytes         int
	longest       int

	clock flightClock

	route       route // streams of the current submission; changed under lane.submitting
	predecessor predecessor
	enqueued    time.Duration // time at which the host began to enqueue the batch

	// start, computing and copyingOut are events at the start of a stage, for Schedule.HostWaits only. The other three
	// are events at the end of a stage.
	start, copiedIn, computing, computed, copyingOut, copiedOut device.Event

	read [numTimestamps]readTimestamp // cached times of the events at stage ends; guarded by Pipeline.timing

	mappedIn, mappedOut device.Memory // addresses of in and out for kernels; zero if the buffers aren't mapped
	inPlace             bool          // whether the kernels of this submission use mappedIn and mappedOut, without copies

	commands []device.Command    // commands not yet passed to the device, in order
	args     []device.LaunchArgs // one per operator
	results  []resultSpan        // one per operator
	probe    *probing            // set in a probe's batch; nil in any other batch
	copies   bool                // whether to copy the batch even if kernels could use it in place

	stepping bool            // whether the operators run in steps (see StepThrough)
	stepped  bool            // whether StepThrough was called, so the time in flight doesn't cover all operators
	stepsEnd <-chan struct{} // ends the steps when closed; nil if the steps have no early end
	// current is the number of the operator in progress, from 1, or 0 outside of steps. Pipeline.mu guards it.
	current int

	ended  func() // closes the batch's profiler range; nil if no range is open
	record Record
}

// resultSpan is the position of an operator's records in the result buffers.
type resultSpan struct{ off, len int }

// Slot returns the index of the batch's buffers, from 0 to Pipeline.Slots()-1. Two batches that the caller owns at the
// same time have different slots, so the caller can keep per-batch data in an array.
func (b *Batch) Slot() int { return b.slot }

// Rows returns the number of payloads in the batch.
func (b *Batch) Rows() int { return len(b.offsets) - 1 }

// Bytes returns the total size of the payloads appended so far, in bytes.
func (b *Batch) Bytes() int { return b.bytes }

// Fits reports whether a payload of n bytes can still be appended.
func (b *Batch) Fits(n int) bool {
	return n <= b.pipe.o.BatchBytes-b.bytes && b.Rows() < b.pipe.o.BatchPayloads
}

// IsFull reports whether the batch has reached one of its bounds. The close reason names that bound.
func (b *Batch) IsFull() (CloseReason, bool) {
	switch {
	case b.Rows() >= b.pipe.o.BatchPayloads:
		return ClosedByCount, true
	case b.bytes >= b.pipe.o.BatchBytes:
		return ClosedByBytes, true
	}
	return 0, false
}

// Append copies payload to the end of the batch. If the payload doesn't fit, Append returns false and changes nothing.
func (b *Batch) Append(payload []byte) bool {
	if !b.Fits(len(payload)) {
		return false
	}
	if b.Rows() == 0 {
		b.record.Stages[Fill].Start = b.pipe.dev.Now()
	}
	copy(b.in.Bytes()[b.bytes:], payload)
	b.bytes += len(payload)
	b.longest = max(b.longest, len(payload))
	b.offsets = append(b.offsets, uint32(b.bytes))
	return true
}

// AppendRun appends the payloads in values, which lie back to back, until one doesn't fit. It returns the number of
// appended payloads. ends holds the end position of each payload, in ascending order. Positions may be relative to any
// origin, because the last position is the end of values.
func (b *Batch) AppendRun(values []byte, ends []uint32) int {
	rows := min(len(ends), b.pipe.o.BatchPayloads-b.Rows())
	if rows <= 0 {
		return 0
	}
	origin := ends[len(ends)-1] - uint32(len(values)) // position of the first byte of values
	if free := b.pipe.o.BatchBytes - b.bytes; int(ends[rows-1]-origin) > free {
		rows = sort.Search(rows, func(i int) bool { return int(ends[i]-origin) > free })
		if rows == 0 {
			return 0
		}
	}
	if b.Rows() == 0 {
		b.record.Stages[Fill].Start = b.pipe.dev.Now()
	}
	n := copy(b.in.Bytes()[b.bytes:], values[:ends[rows-1]-origin])
	first := len(b.offsets)
	b.offsets = slices.Grow(b.offsets, rows)[:first+rows]
	shift, longest, previous := uint32(b.bytes)-origin, uint32(b.longest), origin
	for i, end := range ends[:rows] {
		b.offsets[first+i] = end + shift
		longest = max(longest, end-previous)
		previous = end
	}
	b.bytes += n
	b.longest = int(longest)
	return rows
}

// Oldest returns the age of the oldest payload: the time since it was appended. An empty batch returns 0.
func (b *Batch) Oldest() time.Duration {
	if b.Rows() == 0 {
		return 0
	}
	return b.pipe.dev.Now() - b.record.Stages[Fill].Start
}

// LaneIdle reports whether the device has no work on this batch's lane. While the lane is idle, waiting for more
// payloads only adds latency.
func (b *Batch) LaneIdle() bool { return b.lane.busy.Load() == 0 }

// Idle returns a channel that receives a value when the lane may have become idle. Only the owner of the lane's filling
// batch may receive from the channel.
func (b *Batch) Idle() <-chan struct{} { return b.lane.idle }

// shape returns the batch's dimensions for the operators.
func (b *Batch) shape() device.Shape {
	return device.Shape{Rows: b.Rows(), Bytes: b.bytes, Longest: b.longest}
}

// seal writes the offsets table. It returns the region to copy, and the table's offset in region.
func (b *Batch) seal() (region device.HostBuffer, table int) {
	table = alignUp(b.bytes, tableAlign)
	end := table + 4*len(b.offsets)
	dst := b.in.Bytes()[table:end]
	for i, o := range b.offsets {
		binary.LittleEndian.PutUint32(dst[4*i:], o)
	}
	return b.in.Slice(0, end), table
}

// Err returns the error of a completed batch, or nil if the batch's results are valid.
func (b *Batch) Err() error { return b.record.Err }

// Results returns the Rows() records of the operator with index op, back to back. Call it only for a completed batch
// without an error. The slice is valid until Release.
func (b *Batch) Results(op int) []byte {
	span := b.results[op]
	return b.out.Slice(span.off, span.len).Bytes()
}

// Offsets returns Rows()+1 positions in the batch's bytes: the start of each payload, and the end of the last payload.
// The slice is valid until Release.
func (b *Batch) Offsets() []uint32 { return b.offsets }

// ReadRecord returns the batch's record. The record is valid from completion to Release. The first call reads the stage
// timestamps from the device, which takes about ten microseconds on a GPU.
func (b *Batch) ReadRecord() *Record {
	b.pipe.timeUpTo(b)
	return &b.record
}

// reset empties the batch and makes it batch number n of its pipeline.
func (b *Batch) reset(n uint64) {
	b.offsets = append(b.offsets[:0], 0)
	b.bytes, b.longest = 0, 0
	b.record = Record{Device: b.pipe.info.ID, Batch: n, Lane: b.lane.index}
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }
