// Package partition contains the rules of exclusive delivery that need no input or output. Assign distributes
// partitions among workers, Floor tracks the inputs that one acknowledgement may cover, and Caution limits batches
// after a worker died. The leases of package lease use Floor and Caution, and package members uses Assign.
package partition

import (
	"cmp"
	"slices"
)

// Floor tracks the inputs that a lease has taken, and the inputs that its next acknowledgement may cover. A lease takes
// an input by receiving its delivery or by reading the input from the stream.
//
// One acknowledgement covers all earlier inputs of the partition, even inputs that another worker received. The lease
// must therefore take and settle all of them. It first reads the earlier deliveries from the stream. Under one pin, the
// consumer uses each consumer sequence once, and delivers an input for the first time only after all inputs before it.
// A lease that receives every consumer sequence therefore misses no input. If a sequence is missing, the lease reads
// the delivered inputs from the stream again.
//
// A Floor is not safe for concurrent use.
type Floor struct {
	delivered uint64  // consumer sequence up to which every delivery has arrived, or its input has been read from the stream
	highest   uint64  // stream sequence of the last input that was taken, or of the lease's start
	open      []input // inputs that were taken and are not acknowledged yet, in stream order
	first     int     // index of the first unacknowledged input in open
}

// NewFloor returns the floor of a lease that starts after stream sequence acknowledged.
func NewFloor(acknowledged uint64) Floor { return Floor{highest: acknowledged} }

// input is an input that is not acknowledged yet.
type input struct {
	sequence uint64 // stream sequence
	settled  bool
}

// Verdict is the result of Take for a delivery.
type Verdict uint8

// The verdicts.
const (
	New   Verdict = iota // the input is new and must be processed
	Read                 // the input was read from the stream before the delivery arrived
	Known                // the input is in flight or settled, and the server has redelivered it
	Gap                  // earlier deliveries are missing; Add their inputs, call CaughtUp, and Take the delivery again
)

func (v Verdict) String() string { return [...]string{"new", "read", "known", "gap"}[v] }

// Take records a delivery with the given consumer sequence (number) and stream sequence. If it returns Gap, it records
// nothing.
func (f *Floor) Take(number, sequence uint64) Verdict {
	switch next := number == f.delivered+1; {
	case sequence <= f.highest && number <= f.delivered:
		return Read
	case sequence <= f.highest:
		if next {
			f.delivered = number
		}
		return Known
	case !next:
		return Gap
	}
	f.delivered = number
	f.Add(sequence)
	return New
}

// Add records that an input was taken. The input must be the partition's first after Highest.
func (f *Floor) Add(sequence uint64) {
	f.highest = sequence
	f.open = append(f.open, input{sequence: sequence})
}

// CaughtUp records that the inputs of all deliveries up to the consumer sequence number have been taken.
func (f *Floor) CaughtUp(number uint64) { f.delivered = number }

// Delivered returns the consumer sequence up to which no delivery is missing.
func (f *Floor) Delivered() uint64 { return f.delivered }

// Highest returns the stream sequence of the last input that was taken. All earlier inputs of the partition have been
// taken, or were acknowledged before the lease.
func (f *Floor) Highest() uint64 { return f.highest }

// Settle records that the result or the dead letter of an input is stored. It panics if the input was never taken or is
// already acknowledged, because the next acknowledgement could then cover too much.
func (f *Floor) Settle(sequence uint64) {
	at := f.find(sequence)
	if at < 0 {
		panic("partition: an input is settled that is not open")
	}
	f.open[at].settled = true
}

// find returns the index in f.open of the input with the given stream sequence, or -1.
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

// Acknowledge removes the inputs that one acknowledgement may cover now, and returns the stream sequence that the
// acknowledgement must name. It reports false if there are no such inputs.
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

// Open returns the number of inputs that were taken and are not acknowledged.
func (f *Floor) Open() int { return len(f.open) - f.first }

// Member is a worker that shares the partitions of a stream.
type Member struct {
	ID   string
	Owns []int // partitions that the member claims to own
}

// Assign assigns each of n partitions to a member. The i-th entry of the result is the ID of partition i's owner, or
// empty without members. The members' numbers of partitions differ by at most one. Within that limit, members keep the
// partitions that they own. The order of the members doesn't affect the result.
func Assign(n int, members []Member) []string {
	owners := make([]string, n)
	if len(members) == 0 {
		return owners
	}
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		// If n isn't a multiple of the number of members, the members with the most partitions keep the extra ones.
		// Between equal members, the IDs decide.
		return cmp.Or(cmp.Compare(len(b.Owns), len(a.Owns)), cmp.Compare(a.ID, b.ID))
	})
	free := make([]int, len(members))
	for i := range members {
		free[i] = n / len(members)
		if i < n%len(members) {
			free[i]++
		}
	}
	for i, m := range members {
		for _, p := range slices.Sorted(slices.Values(m.Owns)) {
			if free[i] > 0 && p >= 0 && p < n && owners[p] == "" {
				owners[p] = m.ID
				free[i]--
			}
		}
	}
	next := 0
	for p := range owners {
		if owners[p] != "" {
			continue
		}
		for free[next] == 0 {
			next++
		}
		owners[p] = members[next].ID
		free[next]--
	}
	return owners
}
