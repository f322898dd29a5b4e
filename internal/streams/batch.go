package streams

import (
	"encoding/binary"
	"errors"
	"slices"
	"sort"
	"time"

	"millrace/internal/device"
)

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
