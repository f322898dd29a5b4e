package faults

import (
	"fmt"
	"testing"
)

// TestWorkerKilled repeatedly kills one worker, or one of three, under load, and starts a replacement.
func TestWorkerKilled(t *testing.T) {
	need(t)
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", workers), func(t *testing.T) {
			eachMode(t, func(r *rig) {
				r.killWorkers(workers, times(50, 2), fmt.Sprintf("SIGKILL of a worker of %d", workers), r.ordinary())
			})
		})
	}
}

// killWorkers repeatedly kills one of the given number of workers under load, and starts a replacement.
func (r *rig) killWorkers(workers, kills int, fault string, l load) {
	r.serve(1)
	r.work(workers)
	f := r.feed(endless, l.input)
	for range kills {
		r.awaitResults(1 + r.rng.IntN(l.between))
		i := r.rng.IntN(workers)
		r.workers[i].kill()
		r.workers[i] = r.startWorker()
	}
	f.finish()
	r.close(fault, kills)
}
