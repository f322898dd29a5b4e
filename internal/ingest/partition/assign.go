// Package partition is the pure part of exclusive delivery: which worker has which partition, what one
// acknowledgement may cover, and how carefully a partition is worked on after its worker died. It speaks to nobody.
package partition

import (
	"cmp"
	"slices"
)

// Member is a worker that shares the partitions of a stream.
type Member struct {
	ID   string
	Owns []int // the partitions that it says it has
}

// Assign says who is to have each of n partitions: the result's i-th entry is the ID of partition i's owner, empty where
// there are no members. Loads differ by one at most, and a member keeps what it has as far as that allows. Every member
// that knows of the same others comes to the same result, in whatever order it knows them.
func Assign(n int, members []Member) []string {
	owners := make([]string, n)
	if len(members) == 0 {
		return owners
	}
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		// Who has more keeps the odd ones; otherwise the names decide.
		return cmp.Or(cmp.Compare(len(b.Owns), len(a.Owns)), cmp.Compare(a.ID, b.ID))
	})
	room := make([]int, len(members))
	for i := range members {
		room[i] = n / len(members)
		if i < n%len(members) {
			room[i]++
		}
	}
	for i, m := range members {
		for _, p := range slices.Sorted(slices.Values(m.Owns)) {
			if room[i] > 0 && p >= 0 && p < n && owners[p] == "" {
				owners[p] = m.ID
				room[i]--
			}
		}
	}
	next := 0
	for p := range owners {
		if owners[p] != "" {
			continue
		}
		for room[next] == 0 {
			next++
		}
		owners[p] = members[next].ID
		room[next]--
	}
	return owners
}
