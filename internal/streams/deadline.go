package streams

import (
	"fmt"
	"math/bits"
	"time"
)

// Deadline bounds how long a batch may be in flight before its device counts as hung. A batch may take
// timesUsual times what batches of its size usually take, for each lane, within Min and Max. Only time in which the
// process runs counts, and only from when the batches before it on the same streams have ended. The zero Deadline
// never ends a batch.
type Deadline struct {
	Min time.Duration // the bound is never less, so that a moment's delay is no hang
	Max time.Duration // the bound is never more, and is this until a batch has completed; 0 for no bound at all
}

// timesUsual is how many times the usual a batch may take, for each lane: batches of all lanes share the device, so one
// takes as many times longer with all lanes in flight as alone.
const timesUsual = 8

func (d Deadline) check() error {
	if d.Max != 0 && (d.Min < time.Millisecond || d.Max < d.Min) {
		return fmt.Errorf("streams: deadline from %v to %v, want 1ms or more, in that order", d.Min, d.Max)
	}
	return nil
}

// bound is how long a batch may take whose like takes usual; 0 where that is not known.
func (d Deadline) bound(usual time.Duration, lanes int) time.Duration {
	times := time.Duration(timesUsual * lanes)
	if usual == 0 || usual > d.Max/times {
		return d.Max
	}
	return max(usual*times, d.Min)
}

// usualTimes are the longest times in flight of late, by the size of the work.
type usualTimes [64]time.Duration // by the bits of the work; 0: none has come back

// forget is the part of a longest time that each batch of its size takes off, so that one odd batch does not count for
// ever: half is gone after 44 batches.
const forget = 64

// workOf measures a batch in bytes, with one for each payload. A payload may be worked on by a single unit of the device,
// such as a core, so the longest one counts as if every unit had one like it.
func workOf(bytes, rows, longest, units int) int {
	return max(bytes, longest*max(units, 1)) + rows
}

// learn takes in how long a batch took.
func (u *usualTimes) learn(work int, took time.Duration) {
	longest := &u[bits.Len(uint(work))]
	*longest = max(*longest-*longest/forget, took, 1)
}

// of is how long a batch takes at most, as far as is known: as long as one of its size or the next larger size that has
// come back, or else in proportion longer than the largest. It is 0 before the first, and at most limit.
func (u *usualTimes) of(work int, limit time.Duration) time.Duration {
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
