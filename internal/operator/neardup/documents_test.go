package neardup_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// TestDocuments expects the groups of Curator's workflow for texts with near-duplicates, and that copies of a high similarity are found.
func TestDocuments(t *testing.T) {
	const n, batch = 3000, 700
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
		t.Error("the groups differ")
	}

	near, found, expected := 0, 0, 0.0
	for i := range got {
		if source, similarity, ok := documents.Source(i); ok && similarity >= 0.9 {
			near++
			expected += 1 - math.Pow(1-math.Pow(similarity, float64(p.Rows)), float64(p.Bands))
			if got[i] == got[source] {
				found++
			}
		}
	}
	if near < n/25 || float64(found) < 0.95*expected {
		t.Errorf("%d of %d copies are in the group of their source, and %.0f are expected", found, near, expected)
	}
	t.Logf("%d of %d copies with a wanted similarity of 0.9 or more were found, and %.0f are expected", found, near, expected)
}
