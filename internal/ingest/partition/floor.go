package partition

// Floor keeps, for one tenure of a partition, which deliveries one acknowledgement may cover.
//
// The consumer acknowledges all at once: an acknowledgement of one delivery is one of everything below it in the
// stream, whoever had it. So this worker must know that everything below was delivered to it, and is settled. It begins
// a tenure by resetting the consumer to its acknowledgement floor: from there the server delivers in the order of the
// stream, and numbers what it delivers from 1 without a gap. A number that is missing is a delivery that somebody else
// had, or that got lost on the way; from there on nothing may be acknowledged any more, and the tenure must begin anew.
//
// A Floor is not safe for concurrent use.
type Floor struct {
	delivered uint64  // number of the last delivery
	highest   uint64  // stream sequence of the last one that was new
	open      []input // new deliveries not acknowledged yet, in the order of the stream
	first     int     // index of the first of them in open
	broken    bool
}

// input is a delivery that is not acknowledged.
type input struct {
	sequence uint64 // in the stream
	settled  bool
}

// Verdict says what to do with a delivery.
type Verdict uint8

// The verdicts.
const (
	New   Verdict = iota // process it
	Known                // it is in hand or settled: the server delivered it again because that took long
	Gap                  // there are deliveries that this worker does not know of: begin the tenure anew
)

func (v Verdict) String() string { return [...]string{"new", "known", "gap"}[v] }

// Take enters a delivery: its number at the consumer, and its sequence in the stream.
func (f *Floor) Take(number, sequence uint64) Verdict {
	if f.broken || number != f.delivered+1 {
		f.broken = true
		return Gap
	}
	f.delivered = number
	if sequence <= f.highest {
		return Known
	}
	f.highest = sequence
	f.open = append(f.open, input{sequence: sequence})
	return New
}

// Settle notes that the result or the dead letter of an input is stored. It panics for one that Take did not call New or
// that is acknowledged already: that is a bug, and the next acknowledgement could cover what it must not.
func (f *Floor) Settle(sequence uint64) {
	at := f.find(sequence)
	if at < 0 {
		panic("partition: an input is settled that is not open")
	}
	f.open[at].settled = true
}

// find is the index of an open input, -1 if there is none of that sequence.
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

// Acknowledge takes the inputs off that may be acknowledged now, all with one acknowledgement, and returns the stream
// sequence of the one that it is to name. It reports false where there is none.
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

// Open is how many inputs are in hand or wait for one before them.
func (f *Floor) Open() int { return len(f.open) - f.first }

// Broken says that nothing more can be taken in this tenure. What was taken before may still be settled and
// acknowledged.
func (f *Floor) Broken() bool { return f.broken }
