package ingest

import (
	"context"
	"testing"

	"millrace/internal/streams"
)

// TestExclusiveTellsTheWholeBacklog: a worker knows what waits in partitions that are not its own, and a delivery in one of them
// changes that one's share alone.
func TestExclusiveTellsTheWholeBacklog(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 3)
	const n = 60
	r.publish(n, document)
	e, err := newExclusive(r.prepare(hostDevice(t), streams.Config{}).worker)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.watchBacklog(ctx) }()
	until(t, "the backlog of all partitions is told", func() bool { return r.tally.waiting() == n })
	stop()
	<-done
	most, shares := 0, 0
	for p, share := range e.backlog.pending {
		if share > e.backlog.pending[most] {
			most = p
		}
		if share > 0 {
			shares++
		}
	}
	if shares < 2 {
		t.Fatalf("all messages are in one partition: %v", e.backlog.pending)
	}
	left := n - e.backlog.pending[most]
	if e.backlog.heard(most, 0); r.tally.waiting() != left {
		t.Errorf("%d wait when the largest share is gone, want %d", r.tally.waiting(), left)
	}
}
