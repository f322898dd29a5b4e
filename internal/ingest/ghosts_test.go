package ingest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// haunt makes ghosts (fake members) claim every partition on the members' subject, n per second, until the test ends. With fresh,
// each has its own name. Otherwise one poses as the same member again and again.
func (r *rig) haunt(n int, fresh bool) {
	r.t.Helper()
	nc := r.connect()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.t.Cleanup(func() { cancel(); <-ended })
	all := ""
	for p := range r.opts.Partitions {
		all += fmt.Sprintf(",%d", p)
	}
	say := func(i int) error {
		if !fresh {
			i = 0
		}
		return nc.Publish("millrace.members."+r.opts.Stream+"."+r.opts.Consumer, fmt.Appendf(nil, `{"id":"ghost-%d","owns":[%s]}`, i, all[1:]))
	}
	if err := say(0); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for i := 1; retry.Sleep(ctx, time.Second/time.Duration(n)); i++ {
			if say(i) != nil {
				return // the test has ended
			}
		}
	}()
}

// TestForgedMembersStarveNoWorker checks that all inputs are processed despite fake members, under one name or many, which are there
// before the workers start or come later.
func TestForgedMembersStarveNoWorker(t *testing.T) {
	t.Parallel()
	const partitions, n = 4, 400
	for name, c := range map[string]struct {
		workers int
		fresh   bool
		before  bool
	}{
		"one ghost before the worker":    {1, false, true},
		"fresh ghosts before two":        {2, true, true},
		"fresh ghosts while two work":    {2, true, false},
		"one ghost while a worker works": {1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exclusiveRig(t, partitions)
			published := 0
			more := func() {
				r.publishFrom(published, published+n, spread)
				published += n
				r.tally.awaitStored(t, published)
			}
			if c.before {
				r.haunt(1, c.fresh)
			}
			var workers []*running
			for range c.workers {
				workers = append(workers, r.run(hostDevice(t), streams.Config{}))
			}
			more()
			if !c.before {
				r.haunt(1, c.fresh)
			}
			begun := time.Now()
			for time.Since(begun) < 6*time.Second { // longer than the members' agreement plus the adoption of the remaining partitions
				more()
				pass(t, 50*time.Millisecond)
			}
			for _, w := range workers {
				if err := w.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
			}
			r.wantAll(published, spread)
			if left := r.unacknowledged(); left != 0 {
				t.Errorf("%d inputs are not acknowledged", left)
			}
		})
	}
}

func spread(i int) []byte { return document(i) }
