package members

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestAssignGivesEveryPartitionToSomebody(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + random.IntN(40)
		members := make([]Member, 1+random.IntN(8))
		for i := range members {
			members[i].ID = fmt.Sprintf("w%d", i)
			for range random.IntN(n + 1) {
				// Members may own invalid partitions and duplicates.
				members[i].Owns = append(members[i].Owns, random.IntN(n+2)-1)
			}
		}
		owners := Assign(n, "g", members)
		load := map[string]int{}
		for p, owner := range owners {
			if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == owner }) {
				t.Fatalf("partition %d of %d belongs to %q, which is no member of %v", p, n, owner, members)
			}
			load[owner]++
		}
		for _, m := range members {
			if l := load[m.ID]; l < n/len(members) || l > (n+len(members)-1)/len(members) {
				t.Fatalf("%s has %d of %d partitions among %d members", m.ID, l, n, len(members))
			}
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if again := Assign(n, "g", members); !slices.Equal(again, owners) {
			t.Fatalf("in another order of members %v, before %v", again, owners)
		}
	}
	if owners := Assign(3, "g", nil); !slices.Equal(owners, []string{"", "", ""}) {
		t.Errorf("without members: %q", owners)
	}
}

// TestAssignMovesLittle checks that only the necessary partitions move when a member joins or leaves.
func TestAssignMovesLittle(t *testing.T) {
	members := []Member{{ID: "a"}}
	owned := func(owners []string) []Member {
		for i := range members {
			members[i].Owns = nil
			for p, owner := range owners {
				if owner == members[i].ID {
					members[i].Owns = append(members[i].Owns, p)
				}
			}
		}
		return members
	}
	before := Assign(12, "g", members)
	for _, id := range []string{"b", "c", "d"} {
		members = append(owned(before), Member{ID: id})
		after := Assign(12, "g", members)
		moved := 0
		for p := range after {
			if after[p] != before[p] {
				moved++
				if after[p] != id {
					t.Errorf("%s joined, and partition %d moved from %s to %s", id, p, before[p], after[p])
				}
			}
		}
		if moved != 12/len(members) {
			t.Errorf("%s joined, and %d partitions moved, want %d", id, moved, 12/len(members))
		}
		if again := Assign(12, "g", owned(after)); !slices.Equal(again, after) {
			t.Errorf("no member joined or left, but %v became %v", after, again)
		}
		before = after
	}
}

// TestAssignBalancesManyStreams checks that members with extra partitions differ between streams.
func TestAssignBalancesManyStreams(t *testing.T) {
	const streams, partitions = 300, 7
	members := []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	load := map[string]int{}
	for i := range streams {
		for _, owner := range Assign(partitions, fmt.Sprintf("millrace.members.INGEST-%d.millrace", i), members) {
			load[owner]++
		}
	}
	for _, m := range members {
		if fair := streams * partitions / len(members); load[m.ID] < fair*19/20 || load[m.ID] > fair*21/20 {
			t.Errorf("%s has %d of %d partitions, want about %d", m.ID, load[m.ID], streams*partitions, fair)
		}
	}
}
