package quality

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"unicode/utf8"
)

// TestAlphabeticIsUnicode17 compares the whole set with the hash of the bitmap that the definition names.
func TestAlphabeticIsUnicode17(t *testing.T) {
	const want = "536778604c4c442ddd49aebe9bfdd5bde7dd64e58f29b6e5653113778f03151a"
	bitmap := make([]byte, (utf8.MaxRune+1)/8)
	points := 0
	for u := range rune(utf8.MaxRune + 1) {
		if Alphabetic.Has(u) {
			bitmap[u>>3] |= 1 << (u & 7)
			points++
		}
	}
	sum := sha256.Sum256(bitmap)
	if got := hex.EncodeToString(sum[:]); got != want || points != 147421 {
		t.Errorf("%d code points, bitmap with SHA-256 %s; want 147421 and %s", points, got, want)
	}
	if len(Alphabetic.Index) != 821 || len(Alphabetic.Bits) != 126 {
		t.Errorf("%d blocks with %d bitmaps, want 821 and 126", len(Alphabetic.Index), len(Alphabetic.Bits))
	}
}

func TestAlphabeticRejectsDamage(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a line that isn't a range was accepted")
		}
	}()
	newAlphabetic("0041..00G0 ; Alphabetic\n")
}

func BenchmarkNewAlphabetic(b *testing.B) {
	for b.Loop() {
		newAlphabetic(alphabeticSource)
	}
}
