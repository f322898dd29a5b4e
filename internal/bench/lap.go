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

// lap is a number of batches through a pipeline, as fast as it takes them: each batch that comes back is submitted
// again with the payloads that are in it.
type lap struct {
	p      *streams.Pipeline
	left   *atomic.Int64 // batches still to be submitted when one comes back; several pipelines may share it
	again  bool          // the batches have been submitted before
	locked bool          // every driver has a thread to itself
	recent *recent
}

// ran is what a lap took.
type ran struct {
	batches int
	elapsed time.Duration // wall time
	blocked time.Duration // of that, drivers had nothing to do but wait for a batch to come back; all drivers together
	cpu     time.Duration // processor time of the process
}

// perBatch is seconds a batch.
func (r ran) perBatch() float64 { return r.elapsed.Seconds() / float64(r.batches) }

// run submits the held batches, shared out over drivers goroutines, and what comes back until nothing is left, and
// waits for all. Every batch is the caller's again, completed.
func (l *lap) run(ctx context.Context, held []*streams.Batch, drivers int) (ran, error) {
	var r ran
	var (
		group   sync.WaitGroup
		blocked atomic.Int64
		count   atomic.Int64
		errs    = make([]error, drivers)
	)
	cpu, start := cpuTime(), time.Now()
	for i := range drivers {
		group.Go(func() {
			if l.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			waited, n, err := l.drive(ctx, held[i*len(held)/drivers:(i+1)*len(held)/drivers])
			blocked.Add(int64(waited))
			count.Add(int64(n))
			errs[i] = err
		})
	}
	group.Wait()
	r.elapsed, r.cpu = time.Since(start), cpuTime()-cpu
	r.blocked, r.batches = time.Duration(blocked.Load()), int(count.Load())
	return r, errors.Join(errs...)
}

// drive is one driver. It receives as many batches as it submits, not always the same.
func (l *lap) drive(ctx context.Context, held []*streams.Batch) (blocked time.Duration, submitted int, err error) {
	submit := func(b *streams.Batch, again bool) error {
		if again {
			b.Again()
		}
		submitted++
		return b.Submit(streams.ClosedByBytes)
	}
	for _, b := range held {
		if err := submit(b, l.again); err != nil {
			return blocked, submitted, err
		}
	}
	for flying := submitted; flying > 0; flying-- {
		b, waited, err := receive(ctx, l.p)
		blocked += waited
		if err != nil {
			return blocked, submitted, err
		}
		l.recent.note(b.ReadRecord())
		if l.left.Add(-1) >= 0 {
			if err := submit(b, true); err != nil {
				return blocked, submitted, err
			}
			flying++
		}
	}
	return blocked, submitted, nil
}

// receive waits for a batch to come back, and says how long it waited.
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

// recentBatches is how many records a lap keeps.
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

// last is the last most records, oldest first.
func (r *recent) last(most int) []*streams.Record {
	n := len(r.records)
	var list []*streams.Record
	for i := max(n-most, 0); i < n; i++ {
		list = append(list, &r.records[(r.next+i)%n])
	}
	return list
}

// newCounter is a counter that stands at n.
func newCounter(n int) *atomic.Int64 {
	c := &atomic.Int64{}
	c.Store(int64(n))
	return c
}
