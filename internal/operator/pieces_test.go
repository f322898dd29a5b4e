package operator

import (
	"testing"

	"millrace/internal/corpus"
)

// TestPartsCoverTheBatch: the parts of all pieces, in order, form the batch. Every row starts once and has no gap. A
// part that continues a row is the first of its piece and isn't empty.
func TestPartsCoverTheBatch(t *testing.T) {
	sets := map[string][][]byte{
		"lengths":      corpus.Lengths(91, 30),
		"empties":      corpus.Empties(100),
		"one long row": {corpus.Bytes(92, 1000)},
		"mixed":        append(corpus.LongAmongShort(93, 500, 20), corpus.Empties(5)...),
		"no rows":      {},
	}
	for name, set := range sets {
		rows, offsets := corpus.Pack(set)
		for pieceUnits := 1; pieceUnits < 1100; pieceUnits += 1 + pieceUnits/4 {
			checkParts(t, name, batch{rows, offsets, pieceUnits})
		}
	}
}

func checkParts(t *testing.T, name string, b batch) {
	t.Helper()
	row, at := -1, 0 // end of the parts so far
	for piece := range b.pieces() {
		isFirst, units := true, 0
		for p, ok := b.first(piece); ok; p, ok = b.next(p) {
			if p.begins {
				row++
				units++
			} else if !isFirst || p.low == p.high {
				t.Fatalf("%s, %d units, piece %d: part %+v continues a row, but isn't first or is empty", name, b.pieceUnits, piece, p)
			}
			if p.row != row || p.low != at || p.high < p.low || p.high > int(b.offsets[row+1]) {
				t.Fatalf("%s, %d units, piece %d: part %+v doesn't follow byte %d of row %d", name, b.pieceUnits, piece, p, at, row)
			}
			at = p.high
			units += p.high - p.low
			isFirst = false
		}
		if units > b.pieceUnits || units < b.pieceUnits && piece < b.pieces()-1 {
			t.Fatalf("%s: piece %d of %d has %d units, want %d", name, piece, b.pieces(), units, b.pieceUnits)
		}
	}
	if row != len(b.offsets)-2 || at != len(b.rows) {
		t.Fatalf("%s, %d units: the parts end at byte %d of row %d", name, b.pieceUnits, at, row)
	}
}
