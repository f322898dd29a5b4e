package streams

import (
	"encoding/binary"
	"errors"
	"slices"
	"sort"
	"time"

	"millrace/internal/device"
)

// ErrEmpty is returned for a batch submitted without payloads.
var ErrEmpty = errors.New("streams: batch has no payloads")

// tableAlign is the alignment of the offsets table, which follows the payload bytes.
const tableAlign = 16

// Batch is one use of a lane's buffers: it is filled, submitted, completed and released. The caller owns it from
// Acquire to Submit and from completion to Release, and uses it from one goroutine at a time. The pipeline owns it in
// between.
//
// A batch is ragged. The payloads' bytes lie back to back in one pinned region, followed by a table of Rows()+1
// little-endian uint32 offsets, aligned to 16 bytes. One copy moves the whole region.
type Batch struct {
	Owner any // for the caller: the object that the batch belongs to. Release clears it

	pipe  *Pipeline
	lane  *lane
	slot  int
	phase phase // only lane.move changes it; guarded by Pipeline.mu

	submitting bool   // in flight, but Submit may still fail; guarded by Pipeline.mu
	token      uint64 // identifies its current or latest submission; guarded by Pipeline.mu
	copied     bool   // its copy in has been placed in the timeline; guarded by Pipeline.mu
	untimed    bool   // it completed, and its stage timestamps are still to be read; guarded by Pipeline.mu

	in, out       device.HostBuffer
	input, result device.Memory // device copies of in and out
	offsets       []uint32      // rows+1 entries; capacity for the payload bound
	bytes         int
	longest       int

	clock flightClock

	route       route // streams of this submission; changed under lane.submitting
	predecessor predecessor
	enqueued    time.Duration // when the host began to enqueue it

	// Events at the end of each stage and, if the schedule makes the host wait between stages, also at the start of
	// each stage.
	start, copiedIn, computing, computed, copyingOut, copiedOut device.Event

	read [numTimestamps]readTimestamp // times of the events at the stages' ends; guarded by Pipeline.timing

	mappedIn, mappedOut device.Memory // addresses of in and out for kernels; zero if kernels can't access host memory
	inPlace             bool          // in this submission the kernels use mappedIn and mappedOut, and nothing is copied

	commands []device.Command    // to be enqueued, in order
	args     []device.LaunchArgs // one per operator
	results  []resultSpan        // one per operator
	probe    *probing            // set if the batch belongs to a probe; nil for payloads
	copies   bool                // copy the batch even if kernels could use it in place

	stepping bool            // see StepThrough
	stepped  bool            // StepThrough was called: the time on the device isn't the operators'
	stepsEnd <-chan struct{} // ends the steps; nil if nothing does
	current  int             // in a batch that is computed in steps: number of the current operator, from 1; guarded by Pipeline.mu

	ended  func() // closes the batch's profiler range; nil if there is none
	record Record
}

// resultSpan is the position of an operator's records in the result buffers.
type resultSpan struct{ off, len int }

// Slot returns the index of the batch's buffers, from 0 to Pipeline.Slots()-1. No two batches that the caller owns have
// the same slot, so the caller can keep per-batch data in an array.
func (b *Batch) Slot() int { return b.slot }

// Rows returns the number of payloads in the batch.
func (b *Batch) Rows() int { return len(b.offsets) - 1 }

// Bytes returns the total size of the payloads appended so far, in bytes.
func (b *Batch) Bytes() int { return b.bytes }

// Fits reports whether a payload of n bytes can still be appended.
func (b *Batch) Fits(n int) bool {
	return n <= b.pipe.cfg.BatchBytes-b.bytes && b.Rows() < b.pipe.cfg.BatchPayloads
}

// Full reports whether the batch has reached one of its bounds, and which one.
func (b *Batch) Full() (CloseReason, bool) {
	switch {
	case b.Rows() >= b.pipe.cfg.BatchPayloads:
		return ClosedByCount, true
	case b.bytes >= b.pipe.cfg.BatchBytes:
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

// AppendRun copies payloads that lie back to back in values to the end of the batch, until one doesn't fit. It returns the
// number of payloads that it copied. ends holds the position after each payload, in ascending order. Positions may count
// from any origin: the last of them is the position after the last byte of values.
func (b *Batch) AppendRun(values []byte, ends []uint32) int {
	rows := min(len(ends), b.pipe.cfg.BatchPayloads-b.Rows())
	if rows <= 0 {
		return 0
	}
	origin := ends[len(ends)-1] - uint32(len(values)) // of the positions
	if free := b.pipe.cfg.BatchBytes - b.bytes; int(ends[rows-1]-origin) > free {
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

// Oldest returns the time since the first payload was appended, or 0 for a batch without payloads.
func (b *Batch) Oldest() time.Duration {
	if b.Rows() == 0 {
		return 0
	}
	return b.pipe.dev.Now() - b.record.Stages[Fill].Start
}

// LaneIdle reports whether the device has no work on this batch's lane. If so, waiting for more payloads only adds
// latency.
func (b *Batch) LaneIdle() bool { return b.lane.busy.Load() == 0 }

// Idle returns a channel that receives when the lane may have become idle. Only the owner of the lane's filling batch
// may receive from it.
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

// Err returns nil if the results of a completed batch are valid, otherwise the reason why they are not.
func (b *Batch) Err() error { return b.record.Err }

// Results returns the records of the operator with index op: Rows() records, back to back. It may be called only for a
// completed batch without an error. The slice is valid until Release.
func (b *Batch) Results(op int) []byte {
	span := b.results[op]
	return b.out.Slice(span.off, span.len).Bytes()
}

// Offsets returns where each payload begins in the batch's bytes, and after the last one where it ends. The slice is valid until Release.
func (b *Batch) Offsets() []uint32 { return b.offsets }

// ReadRecord returns the batch's record, which the pipeline changes until completion and reuses after Release. For a
// completed batch the first call queries the device for the stage timestamps, which takes about ten microseconds on a
// GPU.
func (b *Batch) ReadRecord() *Record {
	b.pipe.timeUpTo(b)
	return &b.record
}

// reset prepares the batch to be filled as batch number n of its pipeline.
func (b *Batch) reset(n uint64) {
	b.offsets = append(b.offsets[:0], 0)
	b.bytes, b.longest = 0, 0
	b.record = Record{Device: b.pipe.info.ID, Batch: n, Lane: b.lane.index}
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }
