package streams

import (
	"encoding/binary"
	"errors"
	"time"

	"millrace/internal/device"
)

// ErrEmpty is returned for a batch submitted without payloads.
var ErrEmpty = errors.New("streams: batch has no payloads")

// tableAlign is where the offsets table starts behind the payloads' bytes.
const tableAlign = 16

// Batch is one turn of a lane's buffer: it is filled, submitted, comes back completed, and is released. From
// Acquire to Submit and from completion to Release it belongs to the caller, who uses it from one goroutine;
// between them it belongs to the pipeline.
//
// A batch is ragged: the payloads' bytes back to back, and behind them (aligned to 16) a table of rows+1
// little-endian uint32 offsets, in one pinned region, so that one copy moves all of it.
type Batch struct {
	Owner any // for the caller: what the batch belongs to. Release clears it

	pipe  *Pipeline
	lane  *lane
	slot  int
	phase phase // changed by lane.move alone; guarded by the pipeline's mutex

	submitting bool   // in flight, but Submit may still fail; guarded likewise
	token      uint64 // of the flight it is on or was on last; guarded likewise
	copied     bool   // its copy in has been placed in the timeline; guarded likewise
	untimed    bool   // it came back and its times are still to be read. Guarded by the pipeline's mutex

	in, out       device.HostBuffer
	input, result device.Memory // what they are copied to and from
	offsets       []uint32      // rows+1 entries; capacity for the payload bound
	bytes         int
	longest       int

	clock flightClock

	route    route // of this flight. Changed under the lane's submitting
	follows  follows
	enqueued time.Duration // when the host began to enqueue it

	// The marks behind the stages, and those before them in a schedule in which the host waits between.
	start, copiedIn, computing, computed, copyingOut, copiedOut device.Event

	read [numMarks]readMark // what the marks behind the stages say. Guarded by the pipeline's timing

	mappedIn, mappedOut device.Memory // in and out as kernels reach them; no memory where they cannot
	inPlace             bool          // on this flight they do, and nothing is copied

	commands []device.Command    // to be enqueued, in order
	args     []device.LaunchArgs // of the launches, one for each operator
	results  []resultSpan        // likewise
	probe    *probing            // of the probe that the batch is for; nil for payloads
	copies   bool                // copied, also where kernels could read it in place
	ended    func()              // closes the batch's range for a profiler; nil if there is none
	record   Record
}

// resultSpan is where an operator's records are in the result buffers.
type resultSpan struct{ off, len int }

// Slot identifies the buffer this batch uses: 0 to Pipeline.Slots()-1. No two batches in the caller's hand
// have the same, so the caller can keep what belongs to a batch in an array.
func (b *Batch) Slot() int { return b.slot }

// Rows is the number of payloads.
func (b *Batch) Rows() int { return len(b.offsets) - 1 }

// Bytes is the payloads' bytes so far.
func (b *Batch) Bytes() int { return b.bytes }

// Fits says whether a payload of n bytes can still be appended.
func (b *Batch) Fits(n int) bool {
	return n <= b.pipe.cfg.BatchBytes-b.bytes && b.Rows() < b.pipe.cfg.BatchPayloads
}

// Full says whether a bound is reached, and which.
func (b *Batch) Full() (CloseReason, bool) {
	switch {
	case b.Rows() >= b.pipe.cfg.BatchPayloads:
		return ClosedByCount, true
	case b.bytes >= b.pipe.cfg.BatchBytes:
		return ClosedByBytes, true
	}
	return 0, false
}

// Append copies payload behind the others. It reports false, and does nothing, if it does not fit.
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

// Oldest is how long ago the first payload was appended; 0 for a batch without payloads.
func (b *Batch) Oldest() time.Duration {
	if b.Rows() == 0 {
		return 0
	}
	return b.pipe.dev.Now() - b.record.Stages[Fill].Start
}

// LaneIdle says whether the device has nothing to do on this batch's lane, so that waiting for more
// payloads only costs time.
func (b *Batch) LaneIdle() bool { return b.lane.busy.Load() == 0 }

// Idle receives when the lane may have become idle. Only the holder of the lane's filling batch listens.
func (b *Batch) Idle() <-chan struct{} { return b.lane.idle }

// shape describes the batch to the operators.
func (b *Batch) shape() device.Shape {
	return device.Shape{Rows: b.Rows(), Bytes: b.bytes, Longest: b.longest}
}

// seal writes the offsets table and returns the region to copy.
func (b *Batch) seal() (region device.HostBuffer, table int) {
	table = alignUp(b.bytes, tableAlign)
	end := table + 4*len(b.offsets)
	dst := b.in.Bytes()[table:end]
	for i, o := range b.offsets {
		binary.LittleEndian.PutUint32(dst[4*i:], o)
	}
	return b.in.Slice(0, end), table
}

// Err is nil if the results of a completed batch are valid.
func (b *Batch) Err() error { return b.record.Err }

// Results is the records of the operator with that index, Rows() of them back to back. Only for a completed
// batch without error, and only until Release.
func (b *Batch) Results(op int) []byte {
	span := b.results[op]
	return b.out.Slice(span.off, span.len).Bytes()
}

// Record is what is known of this batch so far. It changes until completion and is reused after Release. The first
// call for a completed batch asks the device for its times, which takes a GPU some ten microseconds.
func (b *Batch) Record() *Record {
	b.pipe.timeUpTo(b)
	return &b.record
}

// reset makes the batch ready to be filled as number n of its pipeline.
func (b *Batch) reset(n uint64) {
	b.offsets = append(b.offsets[:0], 0)
	b.bytes, b.longest = 0, 0
	b.record = Record{Device: b.pipe.info.ID, Batch: n, Lane: b.lane.index}
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }
