package lookup

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// overflowing returns a lookup whose index has space for only one of two inputs. The results of both inputs are
// stored.
func overflowing(t *testing.T) (r *rig, inputs [2]Input) {
	t.Helper()
	r = newRig(t, false)
	now := time.Now()
	inputs = [2]Input{{7, storedAt(now, 7)}, {7 + perBlock, storedAt(now, 7+perBlock)}}
	r.find(inputs[0])
	for key := uint64(1 << 32); len(r.scanner.found.blocks) < maxBlocks-1; key++ {
		r.scanner.found.blocks[key] = nil
	}
	for _, in := range inputs {
		r.store("results.a", fmt.Sprintf("IN:%d:%d", in.Sequence, in.Stored), true)
	}
	return r, inputs
}

// TestAnIndexThatOverflowedIsReadAgain shows that a full index drops results that no current lookup needs. A later
// lookup that needs them must find them again.
func TestAnIndexThatOverflowedIsReadAgain(t *testing.T) {
	t.Parallel()
	r, inputs := overflowing(t)
	for _, in := range []Input{inputs[1], inputs[0], inputs[1]} {
		if !r.find(in)[0].Done {
			t.Errorf("the result of input %d isn't found", in.Sequence)
		}
	}
}

// TestALookupThatOverflowedAndFailed shows that a lookup finds results that an earlier lookup dropped. The earlier
// lookup then failed while it read another stream.
func TestALookupThatOverflowedAndFailed(t *testing.T) {
	t.Parallel()
	r, inputs := overflowing(t)
	dead := r.StreamConfig("DEAD")
	queue := dead
	queue.Retention = jetstream.WorkQueuePolicy
	r.Delete("DEAD")
	r.Create(queue)
	if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: inputs[1]}}); err == nil {
		t.Fatal("a lookup in a work queue succeeds")
	}
	r.Delete("DEAD")
	r.Create(dead)
	if !r.find(inputs[0])[0].Done {
		t.Error("the result that was dropped isn't found")
	}
}
