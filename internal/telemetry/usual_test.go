package telemetry

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestPausesAreNotUsual: a stage that took far longer than others of its kind shows a pause of the host, and doesn't
// count when the stretch to draw is chosen. A duration that is long for one stage may be usual for another.
func TestPausesAreNotUsual(t *testing.T) {
	var bars []bar
	add := func(stage streams.Stage, lengths ...time.Duration) {
		for _, length := range lengths {
			bars = append(bars, bar{stage: inflight.Stage(stage), span: streams.Span{End: length}})
		}
	}
	add(streams.CopyIn, 9, 10, 10, 10*unusual, 10*unusual+1)
	add(streams.Compute, 1000, 1001)
	got := usual(bars)
	if len(got) != len(bars)-1 {
		t.Errorf("%d of %d bars are usual, want all but one", len(got), len(bars))
	}
	for _, b := range got {
		if b.stage == inflight.Stage(streams.CopyIn) && b.span.Duration() > 10*unusual {
			t.Errorf("a copy in of %d is usual among such of 10", b.span.Duration())
		}
	}
}
