package faults

import (
	"fmt"
	"testing"
)

// TestWorkerKilled kills one worker, or one of three, under load, repeatedly, and starts a replacement.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", workers), func(t *testing.T) {
			eachMode(t, func(r *rig) {
				kills := times(50, 2)
				r.serve(1)
				r.work(workers)
				f := r.feed(endless, r.inputs())
				for range kills {
					r.awaitResults(1 + r.rng.IntN(2000))
					i := r.rng.IntN(workers)
					r.workers[i].kill()
					r.workers[i] = r.startWorker()
				}
				f.finish()
				r.close(fmt.Sprintf("SIGKILL of a worker of %d", workers), kills)
			})
		})
	}
}
