package partition

import (
	"fmt"
	"maps"
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
		owners := Assign(n, members)
		load := map[string]int{}
		for p, owner := range owners {
			if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == owner }) {
				t.Fatalf("partition %d of %d belongs to %q, who is no member of %v", p, n, owner, members)
			}
			load[owner]++
		}
		for _, m := range members {
			if l := load[m.ID]; l < n/len(members) || l > (n+len(members)-1)/len(members) {
				t.Fatalf("%s has %d of %d partitions among %d members", m.ID, l, n, len(members))
			}
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if again := Assign(n, members); !slices.Equal(again, owners) {
			t.Fatalf("in another order of members %v, before %v", again, owners)
		}
	}
	if owners := Assign(3, nil); !slices.Equal(owners, []string{"", "", ""}) {
		t.Errorf("without members: %q", owners)
	}
}

// TestAssignMovesLittle shows that no more partitions move than necessary when a member joins or leaves.
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
	before := Assign(12, members)
	for _, id := range []string{"b", "c", "d"} {
		members = append(owned(before), Member{ID: id})
		after := Assign(12, members)
		moved := 0
		for p := range after {
			if after[p] != before[p] {
				moved++
				if after[p] != id {
					t.Errorf("%s came, and partition %d went from %s to %s", id, p, before[p], after[p])
				}
			}
		}
		if moved != 12/len(members) {
			t.Errorf("%s came, and %d partitions moved, want %d", id, moved, 12/len(members))
		}
		if again := Assign(12, owned(after)); !slices.Equal(again, after) {
			t.Errorf("nobody came or went, and %v became %v", after, again)
		}
		before = after
	}
}

func TestFloorAcknowledgesOnlyWhatIsSettled(t *testing.T) {
	var f Floor
	for i, sequence := range []uint64{10, 11, 15, 16} { // the sequences between belong to other partitions
		if v := f.Take(uint64(i+1), sequence); v != New {
			t.Fatalf("delivery %d: %v", i+1, v)
		}
	}
	f.Settle(11)
	f.Settle(15)
	if s, ok := f.Acknowledge(); ok {
		t.Fatalf("acknowledged %d with 10 open", s)
	}
	if v := f.Take(5, 11); v != Known {
		t.Fatalf("a redelivery is %v", v)
	}
	f.Settle(10)
	if s, ok := f.Acknowledge(); !ok || s != 15 {
		t.Fatalf("acknowledged %d, %v; want 15", s, ok)
	}
	if f.Open() != 1 {
		t.Fatalf("%d are open, want 1", f.Open())
	}
	f.Settle(16)
	if s, ok := f.Acknowledge(); !ok || s != 16 {
		t.Fatalf("acknowledged %d, %v; want 16", s, ok)
	}
}

// TestFloorMissesNoDelivery shows that no new delivery is taken after a missing number until the stream has been
// read. This holds even if the next delivery is already known.
func TestFloorMissesNoDelivery(t *testing.T) {
	f := NewFloor(9)
	if v := f.Take(2, 12); v != Gap {
		t.Fatalf("the second delivery, first: %v", v)
	}
	for _, s := range []uint64{10, 11, 12, 13} {
		f.Add(s)
	}
	f.CaughtUp(3)
	for i, c := range []struct {
		number, sequence uint64
		want             Verdict
	}{
		{2, 12, Read}, {3, 13, Read}, // these were in transit
		{4, 15, New},
		{5, 11, Known}, // redelivered
		{7, 12, Known}, // after a missing number
		{8, 18, Gap},   // the missing one may be 16 or 17
		{8, 18, Gap},   // and is not forgotten
	} {
		if v := f.Take(c.number, c.sequence); v != c.want {
			t.Fatalf("%d: delivery %d of %d is %v, want %v", i, c.number, c.sequence, v, c.want)
		}
	}
	f.Add(17)
	f.CaughtUp(8)
	if v := f.Take(8, 18); v != Gap {
		t.Fatalf("a delivery that was not in the stream: %v", v)
	}
	f.Add(18)
	if v := f.Take(9, 19); v != New || f.Highest() != 19 || f.Delivered() != 9 {
		t.Fatalf("the next delivery: %v, up to %d, number %d", v, f.Highest(), f.Delivered())
	}
	for _, s := range []uint64{10, 12, 13, 15} {
		f.Settle(s)
	}
	if s, ok := f.Acknowledge(); !ok || s != 10 {
		t.Fatalf("acknowledged %d, %v; want 10, since 11 is open", s, ok)
	}
	f.Settle(11)
	if s, ok := f.Acknowledge(); !ok || s != 15 || f.Open() != 3 {
		t.Fatalf("acknowledged %d, %v, and %d are open; want 15, with 17 and two others open", s, ok, f.Open())
	}
}

func TestFloorRefusesWhatIsNotOpen(t *testing.T) {
	for name, settle := range map[string]func(f *Floor){
		"never taken":  func(f *Floor) { f.Settle(9) },
		"acknowledged": func(f *Floor) { f.Settle(5); f.Acknowledge(); f.Settle(5) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			var f Floor
			f.Take(1, 5)
			settle(&f)
		})
	}
}

// TestCautionFindsWhatKills kills a worker whenever a batch contains a lethal payload. All other payloads are
// acknowledged, lethal ones are given up, and the number of deaths is limited.
func TestCautionFindsWhatKills(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		const limit = 8192
		n := uint64(1 + random.IntN(3*limit))
		kills := map[uint64]bool{}
		for range 1 + random.IntN(4) {
			kills[1+random.Uint64N(n)] = true
		}
		givenUp := map[uint64]bool{}
		var kept Caution // as stored in the consumer's metadata
		died := false
		deaths, floor, delivered := 0, uint64(0), uint64(0)
		for floor < n {
			c := kept.Begin(floor)
			if died {
				c = kept.AfterDeath(floor, delivered, kept.IsAlone())
				deaths++
			}
			if kept = ParseCaution(c.String()); kept != c {
				t.Fatalf("%v came back as %v", c, kept)
			}
			delivered = max(delivered, min(n, floor+2*limit)) // prefetched payloads
			floor, kept, died = leaseOf(kept, floor, n, limit, kills, givenUp)
			if deaths > 100 {
				t.Fatalf("%d payloads, %v kill: more than 100 deaths", n, kills)
			}
		}
		if !maps.Equal(givenUp, kills) {
			t.Fatalf("%d payloads, %v kill, and given up are %v", n, kills, givenUp)
		}
		if limit := (alone + trials + 2) * len(kills); deaths > limit {
			t.Fatalf("%d payloads, %v kill: %d deaths, want at most %d", n, kills, deaths, limit)
		}
	}
}

// TestCautionBlamesNoPayloadForOtherDeaths also kills workers at any point for other reasons, far more often than a
// payload is tried alone. Only lethal payloads are given up.
func TestCautionBlamesNoPayloadForOtherDeaths(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	others := 0
	for round := range 300 {
		const limit = 8192
		n := uint64(1 + random.IntN(limit))
		kills := map[uint64]bool{}
		for range round % 3 {
			kills[1+random.Uint64N(n)] = true
		}
		givenUp := map[uint64]bool{}
		var kept Caution
		died, alone := false, false
		for floor, lives := uint64(0), 0; floor < n; lives++ {
			c := kept.Begin(floor)
			if died {
				c = kept.AfterDeath(floor, n, alone)
			}
			kept = ParseCaution(c.String())
			if end := floor + random.Uint64N(n-floor+1); random.IntN(3) > 0 && lives < 50 {
				// The worker dies for another reason after it has processed the payloads up to end. A payload that
				// ran alone has left the device by then.
				floor, kept, died = leaseOf(kept, floor, end, limit, kills, givenUp)
				alone = died && kept.IsAlone()
				died = true
				others++
				continue
			}
			floor, kept, died = leaseOf(kept, floor, n, limit, kills, givenUp)
			alone = died && kept.IsAlone()
			if lives > 200 {
				t.Fatalf("%d payloads, %v kill: more than 200 lives", n, kills)
			}
		}
		if !maps.Equal(givenUp, kills) {
			t.Fatalf("%d payloads, %v kill, and given up are %v", n, kills, givenUp)
		}
	}
	if others < 1000 {
		t.Errorf("%d other deaths: nothing was shown", others)
	}
}

// leaseOf processes payloads from floor to n, or until a payload kills it. It returns the new floor, the stored
// caution, and whether a payload killed it.
func leaseOf(c Caution, floor, n uint64, maximum int, kills, givenUp map[uint64]bool) (uint64, Caution, bool) {
	kept, left := c, c.Quarantined(maximum)
	for floor < n {
		if c.GiveUp() && floor == c.Floor {
			givenUp[floor+1] = true
			floor++
			left--
			continue
		}
		size := maximum
		if c.IsDue(floor) {
			size = c.BatchPayloads(maximum)
		}
		end := min(n, floor+uint64(size))
		for s := floor + 1; s <= end; s++ {
			if kills[s] {
				return floor, kept, true
			}
		}
		left -= int(end - floor)
		floor = end
		if c.IsDue(floor) && left <= 0 {
			c = c.Relaxed(floor)
			kept, left = c, c.Quarantined(maximum)
		}
	}
	return floor, kept, false
}

func TestCautionGetsSmaller(t *testing.T) {
	var sizes []int
	for deaths := range 6 {
		sizes = append(sizes, Caution{Deaths: deaths}.BatchPayloads(8192))
	}
	if want := []int{8192, 512, 32, 2, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
	for _, bad := range []string{"", "1", "floor=x until=1 deaths=1 trials=1", "floor=1 until=1 deaths=-1 trials=0"} {
		if c := ParseCaution(bad); c != (Caution{}) {
			t.Errorf("%q reads as %v", bad, c)
		}
	}
}

// TestCautionForgivesWithALeaseThatEndedWell shows that deaths before a properly ended lease aren't added to deaths
// after it.
func TestCautionForgivesWithALeaseThatEndedWell(t *testing.T) {
	c := Caution{Floor: 10, Until: 20, Deaths: alone, Trials: trials - 1}
	if !c.AfterDeath(10, 20, true).GiveUp() {
		t.Error("one death more of a payload alone, and it is not given up")
	}
	began := c.Begin(10)
	if want := (Caution{Floor: 10, Until: 20, Deaths: alone}); began != want {
		t.Errorf("after a lease that ended well: %v, want %v", began, want)
	}
	if began.AfterDeath(10, 20, true).GiveUp() {
		t.Errorf("given up after the first of %d deaths", trials)
	}
}
