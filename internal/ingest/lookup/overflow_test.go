package lookup

import (
	"fmt"
	"testing"
	"time"
)

// TestAnIndexThatOverflowedIsReadAgain: the index has no space for all that the streams have, so a lookup drops what it isn't asked for. The next
// lookup, which is asked for that, must find it.
func TestAnIndexThatOverflowedIsReadAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	inputs := []Input{{7, storedAt(now, 7)}, {7 + perBlock, storedAt(now, 7+perBlock)}}
	r.find(inputs[0])
	for key := uint64(1 << 32); len(r.scanner.found.blocks) < mostBlocks-1; key++ { // there is space for one of them
		r.scanner.found.blocks[key] = nil
	}
	for _, in := range inputs {
		r.store("results.a", fmt.Sprintf("IN:%d:%d", in.Sequence, in.Stored), true)
	}
	for _, in := range []Input{inputs[1], inputs[0], inputs[1]} {
		if !r.find(in)[0].Done {
			t.Errorf("the result of input %d isn't found", in.Sequence)
		}
	}
}
