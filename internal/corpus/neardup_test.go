package corpus

import (
	"bytes"
	"math"
	"testing"
	"unicode/utf8"
)

// similarity returns the Jaccard similarity of the sets of k-character shingles of two texts that have at least k characters.
func similarity(a, b []byte, k int) float64 {
	set := func(text []byte) map[string]bool {
		s, characters := map[string]bool{}, []rune(string(text))
		for i := range len(characters) - k + 1 {
			s[string(characters[i:i+k])] = true
		}
		return s
	}
	x, y := set(a), set(b)
	both := 0
	for shingle := range x {
		if y[shingle] {
			both++
		}
	}
	return float64(both) / float64(len(x)+len(y)-both)
}

// TestNearDuplicates compares intended and true similarities, and expects chains and stars.
func TestNearDuplicates(t *testing.T) {
	const n, k = 4000, 24
	d := NearDuplicates{Seed: 7, Share: 0.3, Least: 0.5, Text: TextsOf(7, 500)}
	copies, chains, sources := 0, 0, map[int]int{}
	distance := 0.0
	for i := range n {
		source, wanted, ok := d.Source(i)
		if !ok {
			continue
		}
		if source >= i || wanted < d.Least || wanted > 1 {
			t.Fatalf("document %d is a copy of %d with similarity %g", i, source, wanted)
		}
		copies++
		sources[source]++
		if _, _, chain := d.Source(source); chain {
			chains++
		}
		text := d.Append(nil, i)
		if !utf8.Valid(text) || !bytes.Equal(text, d.Append([]byte("x"), i)[1:]) {
			t.Fatalf("document %d isn't UTF-8, or differs when it is generated again", i)
		}
		distance += math.Abs(similarity(text, d.Append(nil, source), k) - wanted)
	}
	if copies < n*27/100 || copies > n*33/100 || chains < copies/10 {
		t.Errorf("%d of %d documents are copies, and %d are copies of copies", copies, n, chains)
	}
	most := 0
	for _, count := range sources {
		most = max(most, count)
	}
	if most < 5 {
		t.Errorf("no document has more than %d copies", most)
	}
	if mean := distance / float64(copies); mean > 0.1 {
		t.Errorf("the similarities differ from the intended similarities by %.3f on average", mean)
	}
}
