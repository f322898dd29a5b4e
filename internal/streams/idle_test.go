package streams_test

import (
	"testing"

	"millrace/internal/streams"
)

// TestFillingBatchIsToldThatItsLaneIsIdle checks a caller that keeps a batch open because its lane is busy. The caller
// is notified when the lane's other batch completes.
func TestFillingBatchIsToldThatItsLaneIsIdle(t *testing.T) {
	d := spyOn(openHost(t))
	p := newPipeline(t, d, streams.Options{Lanes: 1})
	open := d.gate(t, "lane-0")
	submit(t, p, someRows(1, 3, 100))
	filling := acquire(t, p, someRows(2, 3, 100))
	if filling.LaneIdle() {
		t.Error("LaneIdle is true with a batch in flight")
	}
	select {
	case <-filling.Idle():
		t.Error("Idle received a value with a batch in flight")
	default:
	}
	open()
	(<-p.Completed()).Release()
	select {
	case <-filling.Idle():
	default:
		t.Error("Idle received no value for an idle lane")
	}
	if !filling.LaneIdle() {
		t.Error("LaneIdle is false with no batch in flight")
	}
	filling.Release()
}
