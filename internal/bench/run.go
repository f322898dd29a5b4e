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

// batchRun sends filled batches through a pipeline as fast as it takes them. Each batch that comes back is submitted
// again with the payloads that are in it.
type batchRun struct {
	p       *streams.Pipeline
	held    []*streams.Batch // filled; the caller's again, completed, when run returns
	drivers int              // goroutines that submit
	locked  bool             // every driver has its own thread
	recent  *recent

	again bool // the batches have been submitted before
}

// ran is what a run took.
type ran struct {
	batches int
	elapsed time.Duration // wall time
	blocked time.Duration // the part of it in which drivers only waited for a batch, summed over the drivers
	cpu     time.Duration // processor time of the process
}

// cores returns processor time over wall time.
func (r ran) cores() float64 { return r.cpu.Seconds() / r.elapsed.Seconds() }

// run submits the held batches, shared among the drivers, and then one more for each batch that comes back until left is
// used up. Several runs may share left, the number of batches beyond the held ones. run waits for all batches.
func (b *batchRun) run(ctx context.Context, left *atomic.Int64) (ran, error) {
	var (
		group   sync.WaitGroup
		blocked atomic.Int64
		count   atomic.Int64
		errs    = make([]error, b.drivers)
	)
	cpu, start := CPUTime(), time.Now()
	for i := range b.drivers {
		group.Go(func() {
			if b.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			waited, n, err := b.drive(ctx, b.held[i*len(b.held)/b.drivers:(i+1)*len(b.held)/b.drivers], left)
			blocked.Add(int64(waited))
			count.Add(int64(n))
			errs[i] = err
		})
	}
	group.Wait()
	b.again = true
	r := ran{elapsed: time.Since(start), cpu: CPUTime() - cpu, blocked: time.Duration(blocked.Load()), batches: int(count.Load())}
	return r, errors.Join(errs...)
}

// times runs n batches, at least as many as are held.
func (b *batchRun) times(ctx context.Context, n int) (ran, error) {
	return b.run(ctx, newCounter(n-len(b.held)))
}

// drive is one driver. It receives as many batches as it submits, though not always the same ones.
func (b *batchRun) drive(ctx context.Context, held []*streams.Batch, left *atomic.Int64) (blocked time.Duration, submitted int, err error) {
	submit := func(batch *streams.Batch, again bool) error {
		if again {
			batch.Again()
		}
		submitted++
		return batch.Submit(streams.ClosedByBytes)
	}
	for _, batch := range held {
		if err := submit(batch, b.again); err != nil {
			return blocked, submitted, err
		}
	}
	for inFlight := submitted; inFlight > 0; inFlight-- {
		batch, waited, err := receive(ctx, b.p)
		blocked += waited
		if err != nil {
			return blocked, submitted, err
		}
		b.recent.note(batch.Record())
		if left.Add(-1) >= 0 {
			if err := submit(batch, true); err != nil {
				return blocked, submitted, err
			}
			inFlight++
		}
	}
	return blocked, submitted, nil
}

// receive waits for a batch to come back and returns how long it waited.
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

// recentBatches is how many records are kept of a run.
const recentBatches = 256

// recent keeps the records of the last batches.
type recent struct {
	mu      sync.Mutex
	records []streams.Record // a ring once it is full
	next    int
}

func (r *recent) note(record *streams.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) < recentBatches {
		r.records = append(r.records, *record)
		return
	}
	r.records[r.next] = *record
	r.next = (r.next + 1) % recentBatches
}

func (r *recent) forget() { r.records, r.next = r.records[:0], 0 }

// last returns the last records, at most that many, oldest first.
func (r *recent) last(most int) []*streams.Record {
	n := len(r.records)
	var list []*streams.Record
	for i := max(n-most, 0); i < n; i++ {
		list = append(list, &r.records[(r.next+i)%n])
	}
	return list
}

// newCounter returns a counter that starts at n.
func newCounter(n int) *atomic.Int64 {
	c := &atomic.Int64{}
	c.Store(int64(n))
	return c
}
