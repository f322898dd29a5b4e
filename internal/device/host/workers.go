package host

import (
	"sync"
	"sync/atomic"

	"millrace/internal/device/software"
)

// workers are the goroutines that help streams with launches. The goroutine that calls run works too. So a call
// completes even if every worker is busy or the call is nested in another call.
type workers struct {
	mu     sync.Mutex
	ready  sync.Cond // workers wait here for jobs
	count  int
	jobs   []*job // jobs that may have unprocessed indexes
	turn   int    // index of the job that the next worker helps
	closed bool
	exited sync.WaitGroup

	spare sync.Pool // holds *job
}

// job is one call of run.
type job struct {
	fn   func(int)
	n    int64
	next atomic.Int64 // next unprocessed index

	helpers int       // number of workers on this job; guarded by workers.mu
	idle    sync.Cond // the caller waits here until helpers is 0

	panicked atomic.Pointer[software.Panic]
}

func startWorkers(count int) *workers {
	w := &workers{count: count}
	w.ready.L = &w.mu
	w.spare.New = func() any { return &job{idle: sync.Cond{L: &w.mu}} }
	for range count {
		w.exited.Go(w.serve)
	}
	return w
}

// stop waits for the workers to return. No run may be in progress.
func (w *workers) stop() {
	w.mu.Lock()
	w.closed = true
	w.ready.Broadcast()
	w.mu.Unlock()
	w.exited.Wait()
}

// run is the device.Parallel that kernels use. If fn panics, run panics with a *software.Panic after the last call of
// fn has returned.
func (w *workers) run(n int, fn func(i int)) {
	if n == 1 || w.count == 0 {
		for i := range n {
			fn(i)
		}
		return
	}
	if n <= 0 {
		return
	}
	j := w.spare.Get().(*job)
	j.fn, j.n = fn, int64(n)
	j.next.Store(0)
	w.offer(j)
	j.work()
	w.retire(j)

	p := j.panicked.Swap(nil)
	j.fn = nil
	w.spare.Put(j)
	if p != nil {
		panic(p)
	}
}

// offer wakes workers for a job.
func (w *workers) offer(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, j)
	for range min(j.n-1, int64(w.count)) {
		w.ready.Signal()
	}
}

// retire waits until no worker runs the job. No index may be unprocessed.
func (w *workers) retire(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(j)
	for j.helpers > 0 {
		j.idle.Wait()
	}
}

// remove deletes a job from the list, if it is still in the list. The caller holds mu.
func (w *workers) remove(j *job) {
	for i, other := range w.jobs {
		if other == j {
			last := len(w.jobs) - 1
			w.jobs[i], w.jobs[last] = w.jobs[last], nil
			w.jobs = w.jobs[:last]
			return
		}
	}
}

// serve is the loop of a worker's goroutine. It alternates between the jobs.
func (w *workers) serve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.jobs) == 0 && !w.closed {
			w.ready.Wait()
		}
		if w.closed {
			return
		}
		w.turn++
		j := w.jobs[w.turn%len(w.jobs)]
		j.helpers++
		w.mu.Unlock()
		j.work()
		w.mu.Lock()
		w.remove(j)
		j.helpers--
		if j.helpers == 0 {
			j.idle.Signal()
		}
	}
}

// work takes indexes and calls fn with them until no index is left. A panic of fn drops the remaining indexes.
func (j *job) work() {
	defer func() {
		if v := recover(); v != nil {
			j.panicked.CompareAndSwap(nil, software.AsPanic(v))
			j.next.Store(j.n)
		}
	}()
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.fn(int(i))
	}
}
