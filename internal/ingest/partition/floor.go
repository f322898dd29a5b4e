package partition

// Floor keeps, for one lease of a partition, which deliveries one acknowledgement may cover.
//
// The consumer acknowledges all at once: an acknowledgement of one delivery is one of everything below it in the
// stream, whoever had it. So this worker must know that everything below was delivered to it, and is settled. It begins
// a lease by resetting the consumer to its acknowledgement floor: from there the server delivers in the order of the
// stream, and numbers what it delivers from 1 without a gap. A number that is missing may be that of an input that this
// worker never saw: then it has to be read from the stream before anything behind it is taken.
//
// A Floor is not safe for concurrent use.
type Floor struct {
	delivered uint64  // number of the last delivery
	doubt     bool    // numbers were missing, of deliveries that this worker may never have seen
	filled    uint64  // the stream has been read up to before this sequence
	highest   uint64  // stream sequence of the last one that was new, or where the lease began
	open      []input // new deliveries not acknowledged yet, in the order of the stream
	first     int     // index of the first of them in open
}

// NewFloor is the floor of a lease that begins behind that sequence of the stream.
func NewFloor(acknowledged uint64) Floor { return Floor{highest: acknowledged} }

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
	Gap                  // read the stream between Highest and it, Fill, and take it again
)

func (v Verdict) String() string { return [...]string{"new", "known", "gap"}[v] }

// Take enters a delivery: its number at the consumer, its sequence in the stream, and whether it was delivered before,
// to whomever. After Gap nothing is entered.
//
// What is delivered for the first time has everything before it delivered already, so once the stream has been read up to
// there no doubt is left. A delivery that comes again says nothing of the sort: what is missing may be behind it too.
func (f *Floor) Take(number, sequence uint64, again bool) Verdict {
	f.doubt = f.doubt || number != f.delivered+1
	if sequence > f.highest && f.doubt && f.filled != sequence {
		return Gap
	}
	f.delivered = number
	if sequence <= f.highest {
		return Known
	}
	f.doubt = f.doubt && again
	f.add(sequence)
	return New
}

// Fill enters inputs that were read from the stream: all that the partition has between Highest and sequence, in order.
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

// Highest is the stream sequence up to which every input of the partition was taken, or acknowledged before.
func (f *Floor) Highest() uint64 { return f.highest }

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
