// Package partition is the pure part of exclusive delivery. It computes which worker has which partition (Assign), what one
// acknowledgement may cover (Floor), and how small batches are after a worker died (Caution). It does no input or output. The
// leases of package partitioned use it, and package members uses Assign.
package partition

import (
	"cmp"
	"slices"
)

// Member is a worker that shares the partitions of a stream.
type Member struct {
	ID   string
	Owns []int // the partitions that it claims to own
}

// Assign gives each of n partitions an owner. The i-th entry of the result is the ID of partition i's owner, or empty if there
// are no members. Loads differ by at most one, and members keep their partitions as far as that allows. The same members give the
// same result in any order.
func Assign(n int, members []Member) []string {
	owners := make([]string, n)
	if len(members) == 0 {
		return owners
	}
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		// Loads can't all be equal if n isn't a multiple of the number of members. Members that already have more
		// partitions then keep the extra ones. Otherwise their IDs decide.
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
