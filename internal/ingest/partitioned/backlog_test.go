package partitioned

import (
	"context"
	"testing"
)

// TestExclusiveReportsTheWholeBacklog: a worker knows the backlog of other workers' partitions, and a delivery changes only its own
// partition's share.
func TestExclusiveReportsTheWholeBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	const n = 60
	r.publish(n, document)
	w := r.mode(r.hostPipeline()).watch
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	until(t, "the backlog of all partitions is told", func() bool { return r.events.waiting() == n })
	stop()
	<-done
	most, shares := 0, 0
	for p, share := range w.backlog.pending {
		if share > w.backlog.pending[most] {
			most = p
		}
		if share > 0 {
			shares++
		}
	}
	if shares < 2 {
		t.Fatalf("all messages are in one partition: %v", w.backlog.pending)
	}
	left := n - w.backlog.pending[most]
	if w.backlog.update(most, 0); r.events.waiting() != left {
		t.Errorf("%d wait when the largest share is gone, want %d", r.events.waiting(), left)
	}
}
