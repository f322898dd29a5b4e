package partitioned

import (
	"context"
	"testing"
)

// TestExclusiveReportsTheWholeBacklog shows that a worker reports the backlog of all partitions. A delivery changes
// only its own partition's share.
func TestExclusiveReportsTheWholeBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	const n = 60
	r.publish(n, document)
	w := r.mode(r.hostPipeline()).watch
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	r.Until("the backlog of all partitions is told", func() bool { return r.events.waiting() == n })
	stop()
	<-done
	maximum, shares := 0, 0
	for p, share := range w.backlog.pending.of {
		if share > w.backlog.pending.of[maximum] {
			maximum = p
		}
		if share > 0 {
			shares++
		}
	}
	if shares < 2 {
		t.Fatalf("all messages are in one partition: %v", w.backlog.pending.of)
	}
	left := n - w.backlog.pending.of[maximum]
	if w.backlog.update(maximum, 0); r.events.waiting() != left {
		t.Errorf("%d wait when the largest share is gone, want %d", r.events.waiting(), left)
	}
}

// TestExclusiveReportsWhatIsUnderWay checks the total number of messages that are delivered and not acknowledged,
// regardless of the worker that holds them.
func TestExclusiveReportsWhatIsUnderWay(t *testing.T) {
	e := newEvents()
	b := newBacklog(e, 3)
	for _, step := range []struct {
		partition, unacknowledged int
		total                     uint64
	}{{0, 10, 10}, {2, 5, 15}, {0, 4, 9}, {1, 1, 10}, {2, 0, 5}, {0, -1, 1}} {
		if b.unsettled(step.partition, step.unacknowledged); e.underWay() != step.total {
			t.Errorf("partition %d has %d: the total is %d, want %d", step.partition, step.unacknowledged, e.underWay(), step.total)
		}
	}
	if e.waiting() != 0 {
		t.Errorf("%d messages wait, want none", e.waiting())
	}
}
