package shared

import (
	"context"
	"sync/atomic"
	"testing"

	"millrace/internal/ingest/stall"
)

// TestBacklogCountsWhatIsUnderWay shows that delivered and unacknowledged messages are reported in addition to
// waiting messages. An autoscaler needs both.
func TestBacklogCountsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(0, 5, document)
	r.input()
	r.input()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var occupied atomic.Bool
	o := Options{Consumer: r.consumer(r.NC), Observer: r.counts, Stalls: stall.NewDetector(1, r.Log.Logger(), r.counts)}
	go func() { defer close(done); watchBacklog(ctx, o, &occupied) }()
	r.Until("three messages wait and two are under way", func() bool { return r.counts.pending.Load() == 3 && r.counts.unacked.Load() == 2 })
	stop()
	<-done
}
