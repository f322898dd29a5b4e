package neardup_test

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// TestDocuments expects the groups of Curator's workflow for texts with near-duplicates, and that copies of a high similarity are found.
func TestDocuments(t *testing.T) {
	const batch = 700
	n := documentCount(t)
	p := neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: n}
	minhash, err := operator.Parse("minhash?hashes=260")
	if err != nil {
		t.Fatal(err)
	}
	documents := corpus.NearDuplicates{Seed: 3, Share: 0.3, Size: 500}
	signatures := make([][]uint32, n)
	var text, record []byte
	for i := range signatures {
		text = documents.Append(text[:0], i)
		record = minhash.AppendReference(record[:0], text)
		signatures[i] = make([]uint32, len(record)/4)
		for j := range signatures[i] {
			signatures[i][j] = binary.LittleEndian.Uint32(record[4*j:])
		}
	}
	got, _, err := neardup.Components(p, batch, signatures)
	if err != nil {
		t.Fatal(err)
	}
	if want := neardup.CuratorGroups(signatures, p.Bands, p.Rows); !slices.Equal(got, want) {
		t.Fatal("the groups differ")
	}

	groups := slices.Clone(got)
	slices.Sort(groups)
	t.Logf("%d documents, %d groups, 0 different", n, len(slices.Compact(groups)))

	var found, all [5]int // by similarity: 0.5, 0.6, 0.7, 0.8, 0.9 and more
	var expected [5]float64
	for i := range got {
		source, _, ok := documents.Source(i)
		if !ok {
			continue
		}
		s := similarity(documents.Append(nil, i), documents.Append(nil, source), p.K)
		if s < 0.5 {
			continue
		}
		k := min(int(s*10)-5, 4)
		all[k]++
		expected[k] += 1 - math.Pow(1-math.Pow(s, float64(p.Rows)), float64(p.Bands))
		if got[i] == got[source] {
			found[k]++
		}
	}
	for k := range all {
		t.Logf("similarity from 0.%d: %d pairs, %d in one group, %.1f share a band by theory", k+5, all[k], found[k], expected[k])
	}
	if all[4] < n/50 || float64(found[4]) < 0.95*expected[4] {
		t.Errorf("%d of %d near copies are in the group of their source, and %.0f are expected", found[4], all[4], expected[4])
	}
}

// documentCount returns 3000, or the value of MILLRACE_NEARDUP_DOCUMENTS.
func documentCount(t *testing.T) int {
	value := os.Getenv("MILLRACE_NEARDUP_DOCUMENTS")
	if value == "" {
		return 3000
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1000 {
		t.Fatalf("MILLRACE_NEARDUP_DOCUMENTS is %q: set a number from 1000", value)
	}
	return n
}

// similarity returns the Jaccard similarity of the sets of k-character shingles of two texts.
func similarity(a, b []byte, k int) float64 {
	set := func(text []byte) map[string]bool {
		s, characters := map[string]bool{}, []rune(string(text))
		for i := range max(1, len(characters)-k+1) {
			s[string(characters[i:min(i+k, len(characters))])] = true
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
