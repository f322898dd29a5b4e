package streams

import (
	"fmt"
	"math/bits"
	"time"
)

// Deadline bounds how long a batch may be in flight before its device counts as hung. The bound is timesUsual times the
// usual time of batches of its size, multiplied by the number of lanes and limited to the range from Min to Max. Time
// counts only while the process runs, and only after the earlier batches on the same streams have completed. The zero
// Deadline sets no bound.
type Deadline struct {
	Min time.Duration // smallest bound, so that a short delay doesn't count as a hang
	Max time.Duration // largest bound, and the bound until a first batch has completed; 0 for no bound at all
}

// timesUsual is how many times its usual duration a batch may take, per lane. All lanes share the device, so with all
// lanes in flight a batch takes that many times longer than alone.
const timesUsual = 8

func (d Deadline) check() error {
	if d.Max != 0 && (d.Min < time.Millisecond || d.Max < d.Min) {
		return fmt.Errorf("streams: deadline bounds %v and %v, want at least 1ms and the smaller one first", d.Min, d.Max)
	}
	return nil
}

// bound returns how long a batch may take, given the usual time for its size. A usual time of 0 means that it is
// unknown.
func (d Deadline) bound(usual time.Duration, lanes int) time.Duration {
	times := time.Duration(timesUsual * lanes)
	if usual == 0 || usual > d.Max/times {
		return d.Max
	}
	return max(usual*times, d.Min)
}

// usualTimes holds the longest recent time in flight for each size of work.
type usualTimes [64]time.Duration // indexed by the bit length of the work; 0 if no batch of that size has completed

// decay is the divisor by which each batch lowers the longest time of its size, so that a single slow batch doesn't
// count forever. After 44 batches half of it is gone.
const decay = 64

// workOf returns the size of a batch in bytes, plus one per payload. A single unit of the device, such as a core, may
// process a whole payload. So the longest payload counts as if every unit had one of that size.
func workOf(bytes, rows, longest, units int) int {
	return max(bytes, longest*max(units, 1)) + rows
}

// learn records how long a batch took.
func (u *usualTimes) learn(work int, took time.Duration) {
	longest := &u[bits.Len(uint(work))]
	*longest = max(*longest-*longest/decay, took, 1)
}

// estimate returns how long a batch is expected to take at most, limited to limit. It uses the time recorded for the
// batch's size or the next larger size, or else scales up the time of the largest smaller size. It returns 0 if no
// batch has completed.
func (u *usualTimes) estimate(work int, limit time.Duration) time.Duration {
	size := bits.Len(uint(work))
	for _, longest := range u[size:] {
		if longest > 0 {
			return min(longest, limit)
		}
	}
	for smaller := size - 1; smaller >= 0; smaller-- {
		longest, doublings := u[smaller], size-smaller
		switch {
		case longest == 0:
		case longest > limit>>doublings:
			return limit
		default:
			return longest << doublings
		}
	}
	return 0
}
