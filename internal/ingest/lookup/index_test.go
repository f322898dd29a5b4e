package lookup

import (
	"fmt"
	"testing"
)

// TestPartsOfUnfinishedInputsAreRemembered: however many parts and dead letters of records are stored, those of an input that is looked
// up stay known. Otherwise they would be stored twice.
func TestPartsOfUnfinishedInputsAreRemembered(t *testing.T) {
	t.Parallel()
	x, wanted := newIndex(), Input{Sequence: 7, Stored: newestMillis}
	x.addPartial("wanted", wanted, []Input{wanted})
	for i := range uint64(2*mostOthers + 1) {
		x.addPartial(fmt.Sprint(i), Input{Sequence: 8 + i, Stored: newestMillis}, []Input{wanted})
	}
	if _, ok := x.partial["wanted"]; !ok {
		t.Error("the part of the input is forgotten")
	}
	if len(x.partial) > mostOthers {
		t.Errorf("%d messages are remembered, and %d are allowed", len(x.partial), mostOthers)
	}
}
