package partition

// Floor tracks, for one lease of a partition, which deliveries one acknowledgement may cover.
//
// An acknowledgement of one delivery covers everything below it in the stream, whichever worker received it. So this worker must
// know that everything below was delivered to it and is settled. It begins a lease by resetting the consumer to its
// acknowledgement floor. From there the server delivers in stream order, with consumer sequences from 1 without a gap. A missing
// consumer sequence may belong to an input that this worker never received. Then the worker reads the stream up to the next
// delivery before it takes that one.
//
// A Floor is not safe for concurrent use.
type Floor struct {
	delivered uint64  // consumer sequence of the last delivery
	doubt     bool    // whether consumer sequences were missing, so that deliveries may have been lost
	filled    uint64  // the stream has been read up to just before this sequence
	highest   uint64  // stream sequence of the last new delivery, or of the lease's start
	open      []input // new deliveries that are not acknowledged yet, in stream order
	first     int     // index of the first unacknowledged delivery in open
}

// NewFloor returns the floor of a lease that begins after that sequence of the stream.
func NewFloor(acknowledged uint64) Floor { return Floor{highest: acknowledged} }

// input is a delivery that is not acknowledged yet.
type input struct {
	sequence uint64 // stream sequence
	settled  bool
}

// Verdict tells what to do with a delivery.
type Verdict uint8

// The verdicts.
const (
	New   Verdict = iota // process it
	Known                // in flight or settled; the server redelivered it after AckWait
	Gap                  // read the stream between Highest and this delivery, call Fill, and take it again
)

func (v Verdict) String() string { return [...]string{"new", "known", "gap"}[v] }

// Take records a delivery: its consumer sequence (number), its stream sequence, and whether it was delivered before, to any
// worker. If it returns Gap, nothing is recorded.
//
// When an input is delivered for the first time, everything before it has been delivered. So once the stream has been read up to
// there, nothing is missing. A redelivery doesn't prove that, because missing inputs may come after it too.
func (f *Floor) Take(number, sequence uint64, redelivered bool) Verdict {
	f.doubt = f.doubt || number != f.delivered+1
	if sequence > f.highest && f.doubt && f.filled != sequence {
		return Gap
	}
	f.delivered = number
	if sequence <= f.highest {
		return Known
	}
	f.doubt = f.doubt && redelivered
	f.add(sequence)
	return New
}

// Fill records inputs that were read from the stream. They must be all inputs of the partition between Highest and
// sequence, in order.
func (f *Floor) Fill(missing []uint64, sequence uint64) {
	for _, s := range missing {
		f.add(s)
	}
	f.filled = sequence
}

func (f *Floor) add(sequence uint64) {
	f.highest = sequence
	f.open = append(f.open, input{sequence: sequence})
}

// Highest returns the stream sequence up to which every input of the partition has been taken or was acknowledged before.
func (f *Floor) Highest() uint64 { return f.highest }

// Settle records that the result or the dead letter of an input is stored. It panics if the input isn't open, because
// Take didn't return New for it or it is already acknowledged. After such a bug, the next acknowledgement could cover
// too much.
func (f *Floor) Settle(sequence uint64) {
	at := f.find(sequence)
	if at < 0 {
		panic("partition: an input is settled that is not open")
	}
	f.open[at].settled = true
}

// find returns the index of the open input with that sequence, or -1 if there is none.
func (f *Floor) find(sequence uint64) int {
	low, high := f.first, len(f.open)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if f.open[middle].sequence < sequence {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(f.open) || f.open[low].sequence != sequence {
		return -1
	}
	return low
}

// Acknowledge removes the inputs that one acknowledgement may cover now, and returns the stream sequence that it must name. It
// reports false if there are none.
func (f *Floor) Acknowledge() (sequence uint64, ok bool) {
	for f.first < len(f.open) && f.open[f.first].settled {
		sequence, ok = f.open[f.first].sequence, true
		f.first++
	}
	if f.first > len(f.open)/2 {
		f.open = f.open[:copy(f.open, f.open[f.first:])]
		f.first = 0
	}
	return sequence, ok
}

// Open returns how many inputs are in flight or wait for an earlier one.
func (f *Floor) Open() int { return len(f.open) - f.first }
