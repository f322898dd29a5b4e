package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/streams"
)

// batchRun sends filled batches through pipelines at the highest possible rate. It submits each completed batch again
// with the same payloads.
type batchRun struct {
	drivers []driver // goroutines that submit
	locked  bool     // every driver has its own thread
	recent  *recent

	again bool // the batches have been submitted before
}

// driver is a goroutine that submits batches to a pipeline. Several drivers may share one pipeline.
type driver struct {
	p    *streams.Pipeline
	held []*streams.Batch // filled; when the run ends, the caller owns them again, completed
}

// ran holds the times that a run took.
type ran struct {
	batches int
	elapsed time.Duration // wall time
	blocked time.Duration // time in which drivers only waited for a batch, summed over the drivers
	cpu     time.Duration // processor time of the process
}

// cores returns processor time over wall time.
func (r ran) cores() float64 { return r.cpu.Seconds() / r.elapsed.Seconds() }

// run submits the held batches, and resubmits completed batches until n have been submitted in total. It waits for
// every batch. n must be at least the number of held batches.
func (b *batchRun) run(ctx context.Context, n int) (ran, error) {
	var (
		group   sync.WaitGroup
		left    atomic.Int64
		blocked atomic.Int64
		errs    = make([]error, len(b.drivers))
	)
	left.Store(int64(n - b.held()))
	cpu, start := CPUTime(), time.Now()
	for i, d := range b.drivers {
		group.Go(func() {
			if b.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			var waited time.Duration
			waited, errs[i] = b.drive(ctx, d, &left)
			blocked.Add(int64(waited))
		})
	}
	group.Wait()
	b.again = true
	return ran{batches: n, elapsed: time.Since(start), cpu: CPUTime() - cpu, blocked: time.Duration(blocked.Load())}, errors.Join(errs...)
}

// held returns the number of batches that the drivers hold.
func (b *batchRun) held() (n int) {
	for _, d := range b.drivers {
		n += len(d.held)
	}
	return n
}

// drive runs one driver and returns how long it only waited. It receives as many batches as it submits, but not always
// the same ones.
func (b *batchRun) drive(ctx context.Context, d driver, left *atomic.Int64) (blocked time.Duration, err error) {
	for _, batch := range d.held {
		if b.again {
			batch.Again()
		}
		if err := batch.Submit(streams.ClosedByBytes); err != nil {
			return blocked, err
		}
	}
	for inFlight := len(d.held); inFlight > 0; inFlight-- {
		batch, waited, err := receive(ctx, d.p)
		blocked += waited
		if err != nil {
			return blocked, err
		}
		b.recent.note(batch.ReadRecord())
		if left.Add(-1) >= 0 {
			batch.Again()
			if err := batch.Submit(streams.ClosedByBytes); err != nil {
				return blocked, err
			}
			inFlight++
		}
	}
	return blocked, nil
}

// receive waits for a completed batch and returns it with the waiting time.
func receive(ctx context.Context, p *streams.Pipeline) (b *streams.Batch, waited time.Duration, err error) {
	select {
	case b = <-p.Completed():
	default:
		start := time.Now()
		select {
		case b = <-p.Completed():
		case <-p.Over():
			return nil, 0, p.Err()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		waited = time.Since(start)
	}
	if err := b.Err(); err != nil {
		return nil, waited, fmt.Errorf("a batch came back with an error: %w", err)
	}
	return b, waited, nil
}

// recentBatches is the number of records that are kept of a run.
const recentBatches = 256

// recent keeps the records of the last recentBatches batches, and up to as many older ones.
type recent struct {
	mu      sync.Mutex
	records []streams.Record
}

func (r *recent) note(record *streams.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 2*recentBatches {
		r.records = r.records[:copy(r.records, r.records[recentBatches:])]
	}
	r.records = append(r.records, *record)
}

func (r *recent) forget() { r.records = r.records[:0] }

// last returns the last records, oldest first: at most the given number and at most recentBatches.
func (r *recent) last(most int) []streams.Record {
	return r.records[max(len(r.records)-min(most, recentBatches), 0):]
}
