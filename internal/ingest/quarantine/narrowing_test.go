package quarantine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNarrowingCondemnsExactlyTheRecordsThatKill runs processes that die at lethal records, until one survives. Each
// process has only the notes of the previous one.
func TestNarrowingCondemnsExactlyTheRecordsThatKill(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, records := range []int{1, 2, 3, 100, 2048, 65536} {
		for _, lethal := range []int{0, 1, 2, 5} {
			kills := map[int]bool{}
			for range min(lethal, records) {
				kills[random.IntN(records)] = true
			}
			kept, deaths := "", 0
			for alive := false; !alive; {
				alive, kept = simulateTrial(t, records, kills, kept)
				if !alive {
					deaths++
				}
				if maximum := len(kills) * (18 + LoneRuns); deaths > maximum {
					t.Fatalf("%d records, of which %d are lethal: more than %d deaths", records, len(kills), maximum)
				}
			}
			condemned := ParseNarrowing(kept).Condemned
			slices.Sort(condemned)
			var want []int
			for i := range kills {
				want = append(want, i)
			}
			slices.Sort(want)
			if !slices.Equal(condemned, want) {
				t.Errorf("%d records: %v are condemned, want %v", records, condemned, want)
			}
		}
	}
}

// simulateTrial tries a frame like a single process. It reports whether the process survives, and returns its notes.
func simulateTrial(t *testing.T, records int, kills map[int]bool, kept string) (alive bool, now string) {
	t.Helper()
	n := ParseNarrowing(kept)
	runs, ok := n.Next(records)
	if !ok {
		t.Fatal("too many records are condemned")
	}
	covered := 0
	for _, r := range runs {
		if r.First != covered || r.Records < 1 {
			t.Fatalf("the runs are %v", runs)
		}
		covered += r.Records
		kept = n.Begin(r).String()
		for i := range r.Records {
			if record := r.First + i; kills[record] && !slices.Contains(n.Condemned, record) {
				return false, kept
			}
		}
	}
	if covered != records {
		t.Fatalf("the runs %v are not %d records", runs, records)
	}
	return true, kept
}

// TestNarrowingGivesUpAFrameOfPoison uses a frame with more lethal records than can be condemned one by one.
func TestNarrowingGivesUpAFrameOfPoison(t *testing.T) {
	n := Narrowing{First: 70, Records: 1, Deaths: LoneRuns, Condemned: make([]int, maxCondemned)}
	if _, ok := n.Next(100); ok {
		t.Error("one record more than the limit is condemned, but the frame is not given up")
	}
}

// TestNarrowingIgnoresWhatItDidNotWrite parses notes of other versions, notes of other frames, and damaged notes.
func TestNarrowingIgnoresWhatItDidNotWrite(t *testing.T) {
	for _, text := range []string{"", "1", "1 2", "1 -2 3", "a b c", "99999999999999999999 1 1"} {
		if n := ParseNarrowing(text); n.String() != (Narrowing{}).String() {
			t.Errorf("%q is read as %v", text, n)
		}
	}
	n := Narrowing{First: 90, Records: 20, Deaths: 1}
	if runs, ok := n.Next(100); !ok || len(runs) != 1 || runs[0] != (Run{0, 100}) {
		t.Errorf("a run beyond the frame's end divides it into %v", runs)
	}
}
