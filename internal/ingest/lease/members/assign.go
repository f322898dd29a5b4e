package members

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
)

// Member is a worker that shares the partitions of a stream.
type Member struct {
	ID   string
	Owns []int // partitions that the member claims to own
}

// Assign assigns each of n partitions to a member. The i-th entry of the result is the ID of partition i's owner, or
// empty without members. The members' numbers of partitions differ by at most one. Within that limit, members keep the
// partitions that they own. The order of the members doesn't affect the result. If a worker reads many streams, group names one of them, so
// that the extra partitions of different streams go to different members.
func Assign(n int, group string, members []Member) []string {
	owners := make([]string, n)
	if len(members) == 0 {
		return owners
	}
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		// If n isn't a multiple of the number of members, the members with the most partitions keep the extra ones.
		// Between equal members, a hash decides.
		return cmp.Or(cmp.Compare(len(b.Owns), len(a.Owns)), bytes.Compare(rank(group, a), rank(group, b)), cmp.Compare(a.ID, b.ID))
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

// rank returns a hash that orders the members of a group.
func rank(group string, m Member) []byte {
	h := sha256.Sum256([]byte(group + " " + m.ID))
	return h[:]
}
