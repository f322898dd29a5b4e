package ingest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// haunt makes ghosts (fake members) claim every partition on the members' subject, once per second, until the test
// ends. If fresh is set, each ghost has its own name. Otherwise all use one name. It returns the number of claims.
func (r *rig) haunt(fresh bool) (claims *atomic.Int64) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.Cleanup(func() { cancel(); <-ended })
	all := ""
	for p := range r.opts.Partitions {
		all += fmt.Sprintf(",%d", p)
	}
	claims = &atomic.Int64{}
	claim := func() error {
		i := claims.Add(1)
		if !fresh {
			i = 0
		}
		return r.NC.Publish("millrace.members."+r.opts.Stream+"."+r.opts.Consumer, fmt.Appendf(nil, `{"id":"ghost-%d","owns":[%s]}`, i, all[1:]))
	}
	if err := claim(); err != nil {
		r.Fatal(err)
	}
	go func() {
		defer close(ended)
		for retry.Sleep(ctx, time.Second) {
			if claim() != nil {
				return
			}
		}
	}()
	return claims
}

// enoughClaims exceeds the number of claims in which the members agree and adopt the remaining partitions.
const enoughClaims = 7

// TestForgedMembersStarveNoWorker shows that all inputs are processed despite fake members. The fake members have one
// name or many, and start before or after the workers.
func TestForgedMembersStarveNoWorker(t *testing.T) {
	t.Parallel()
	const partitions, n = 4, 100
	for name, c := range map[string]struct {
		workers int
		fresh   bool
		before  bool
	}{
		"one ghost before the worker": {1, false, true},
		"fresh ghosts while two work": {2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exclusiveRig(t, partitions)
			published := 0
			more := func() {
				r.publishFrom(published, published+n, document)
				published += n
				r.tally.awaitStored(t, published)
			}
			var claims *atomic.Int64
			if c.before {
				claims = r.haunt(c.fresh)
			}
			var workers []*running
			for range c.workers {
				workers = append(workers, r.run(hostDevice(t), streams.Options{}))
			}
			more()
			if !c.before {
				claims = r.haunt(c.fresh)
			}
			for claim := int64(1); claim <= enoughClaims; claim++ {
				until(t, "the ghosts have claimed the partitions again", func() bool { return claims.Load() >= claim })
				more()
			}
			for _, w := range workers {
				if err := w.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
			}
			r.wantAll(published, document)
			if left := r.unacknowledged(); left != 0 {
				t.Errorf("%d inputs are not acknowledged", left)
			}
		})
	}
}
