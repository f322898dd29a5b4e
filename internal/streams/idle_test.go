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
		t.Error("the lane is idle with a batch in flight")
	}
	select {
	case <-filling.Idle():
		t.Error("told of an idle lane with a batch in flight")
	default:
	}
	open()
	(<-p.Completed()).Release()
	select {
	case <-filling.Idle():
	default:
		t.Error("not told that the lane is idle")
	}
	if !filling.LaneIdle() {
		t.Error("the lane is busy with nothing in flight")
	}
	filling.Release()
}
