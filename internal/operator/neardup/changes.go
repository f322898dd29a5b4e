package neardup

import (
	"iter"
	"math/bits"
)

// changes are the rows of consecutive records of one generation, by record. They are what the log stores.
type changes struct {
	previous          Position // of the last record before
	positions, labels []Position
	inserted, copied  []uint64 // bit b is set if the record inserted the key of band b; if it copied that key from the old generation
	carries           []int
	relabeled         []bool

	newKeys []uint64 // keys of all rows
	carried []carry  // of all rows
}

// newChanges returns changes with capacity for n records.
func newChanges(n, bands int) *changes {
	return &changes{
		positions: make([]Position, n), labels: make([]Position, n),
		inserted: make([]uint64, n), copied: make([]uint64, n),
		carries: make([]int, n), relabeled: make([]bool, n),
		newKeys: make([]uint64, 0, n*bands), carried: make([]carry, 0, n*bands),
	}
}

// slice returns changes for the records from first to end in the memory of c. The keys and carried labels follow those of before, if it isn't nil.
func (c *changes) slice(first, end int, before *changes) changes {
	s := changes{
		positions: c.positions[first:end], labels: c.labels[first:end],
		inserted: c.inserted[first:end], copied: c.copied[first:end],
		carries: c.carries[first:end], relabeled: c.relabeled[first:end],
		newKeys: c.newKeys, carried: c.carried,
	}
	if before != nil {
		s.newKeys, s.carried = before.newKeys[len(before.newKeys):], before.carried[len(before.carried):]
	}
	return s
}

// rows returns the rows and their numbers, from 0.
func (c *changes) rows() iter.Seq2[int, row] {
	return func(yield func(int, row) bool) {
		keys, carried := c.newKeys, c.carried
		for i, inserted := range c.inserted {
			n, m := bits.OnesCount64(inserted), c.carries[i]
			if c.relabeled[i] {
				m = 0
			}
			r := row{
				position: c.positions[i], label: c.labels[i], inserted: inserted, keys: keys[:n],
				carries: c.carries[i], relabeled: c.relabeled[i], carried: carried[:m],
			}
			if keys, carried = keys[n:], carried[m:]; !yield(i, r) {
				return
			}
		}
	}
}
