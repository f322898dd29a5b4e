package quality

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// alphabeticSource lists the ranges of the property Alphabetic, in the format of DerivedCoreProperties.txt.
//
//go:embed alphabetic.txt
var alphabeticSource string

// AlphabeticTable is the set of code points with the property Alphabetic, in two stages. Equal blocks of 256 code points share their bits.
// The set has no code points above the last block of Index.
type AlphabeticTable struct {
	Index []uint8     // number of the bitmap for each block of 256 code points
	Bits  [][8]uint32 // bitmaps: code point u has bit u%32 of word u/32%8
}

// Alphabetic is the property Alphabetic of Unicode 17. Package unicode has an older Unicode.
var Alphabetic = newAlphabetic(alphabeticSource)

// Has reports whether u is in the set. u must not be negative.
func (t *AlphabeticTable) Has(u rune) bool {
	block := uint32(u) >> 8
	return block < uint32(len(t.Index)) && t.Bits[t.Index[block]][u>>5&7]>>(u&31)&1 != 0
}

// newAlphabetic returns the set that source lists. It panics if source is damaged, because the source is part of the program.
func newAlphabetic(source string) *AlphabeticTable {
	words := make([]uint32, (utf8.MaxRune+1)/32)
	last := rune(0)
	for line := range strings.Lines(source) {
		points, _, isRange := strings.Cut(line, ";")
		if !isRange {
			continue // a comment or an empty line
		}
		var first rune
		first, last = parseRange(strings.TrimSpace(points))
		for u := first; u <= last; u++ {
			words[u>>5] |= 1 << (u & 31)
		}
	}
	t := &AlphabeticTable{Index: make([]uint8, last>>8+1)}
	numbers := map[[8]uint32]uint8{}
	for i := range t.Index {
		bits := [8]uint32(words[8*i:])
		number, isKnown := numbers[bits]
		if !isKnown {
			number = uint8(len(t.Bits))
			numbers[bits] = number
			t.Bits = append(t.Bits, bits)
		}
		t.Index[i] = number
	}
	return t
}

// parseRange parses "0041..005A" or "00AA".
func parseRange(points string) (first, last rune) {
	low, high, isLong := strings.Cut(points, "..")
	if !isLong {
		high = low
	}
	a, err1 := strconv.ParseUint(low, 16, 21)
	b, err2 := strconv.ParseUint(high, 16, 21)
	if err1 != nil || err2 != nil || b > utf8.MaxRune {
		panic(fmt.Sprintf("quality: alphabetic.txt has the range %q", points))
	}
	return rune(a), rune(b)
}
