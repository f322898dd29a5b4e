package inflight

import (
	"testing"
)

// TestKeptMemoryIsBounded fills and frees batches, one after another and many at once.
func TestKeptMemoryIsBounded(t *testing.T) {
	t.Parallel()
	k := retention{max: 100_000}
	groups := make([]*Batch, 50)
	for round := range 4 {
		var total int
		for i := range groups {
			if groups[i] == nil {
				groups[i] = &Batch{}
			}
			groups[i].Bodies.Reserve((i%7 + 1) * 3000 * (round%2 + 1))
			k.batch(groups[i])
			total = 0
			for _, g := range groups[:i+1] {
				total += cap(g.Bodies.Data)
			}
			if round == 0 && total > 100_000 {
				t.Fatalf("%d bytes are kept after %d groups, want at most 100,000", total, i+1)
			}
		}
		kept := int64(0)
		for _, g := range groups {
			kept += SizeOf(g.Bodies.Data)
		}
		if kept != k.kept.Load() || kept > k.max || kept < k.max/2 {
			t.Errorf("round %d: %d bytes are kept, %d are counted, want at most %d and no less than half", round, kept, k.kept.Load(), k.max)
		}
	}
}
