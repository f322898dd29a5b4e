package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/streams"
)

// whole measures a pipeline as the worker uses it. During the measurement, several goroutines acquire batches, fill
// them and submit them, and one goroutine receives and releases them.
type whole struct {
	f       *flow
	l       *documents
	fillers int
	memory  [][]byte   // the payloads of each slot's batches, generated before the measurement
	sets    [][][]byte // the payloads, as parts of memory
}

// maxFillers bounds the number of goroutines that fill batches, because the worker has few of them.
const maxFillers = 8

// whole returns a case that measures the whole path of l's payloads, including Append.
func (t *target) whole(name string, l *documents) *Case {
	c, f := t.flow(name, l, t.schedule())
	w := &whole{f: f, l: l, fillers: min(maxFillers, runtime.GOMAXPROCS(0))}
	c.Measure = w.measure
	return c
}

func (w *whole) measure(ctx context.Context, c *Case, seed uint64) error {
	return w.f.withPipeline(func(p *streams.Pipeline) error {
		w.prepare(p.Slots(), seed)
		return w.f.timed(c, p, func(n int) (ran, error) { return w.run(ctx, p, n, seed) })
	})
}

// prepare generates the payloads of n batches. Rounds share the memory, so that no garbage is collected during the
// measurement.
func (w *whole) prepare(n int, seed uint64) {
	for len(w.sets) < n {
		w.sets, w.memory = append(w.sets, nil), append(w.memory, make([]byte, w.l.total))
	}
	for slot, rest := range w.memory {
		of := derive(seed, slot)
		w.sets[slot] = w.sets[slot][:0]
		for i, size := range w.l.sizes(of) {
			Document(rest[:size], of, i)
			w.sets[slot], rest = append(w.sets[slot], rest[:size]), rest[size:]
		}
	}
}

// run sends n batches, at least one per slot, through the whole path. After the measurement, it checks the last batch
// of each slot and releases it.
func (w *whole) run(ctx context.Context, p *streams.Pipeline, n int, seed uint64) (ran, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		group sync.WaitGroup
		next  atomic.Int64
		errs  = make([]error, w.fillers+1)
	)
	cpu, start := CPUTime(), time.Now()
	for i := range w.fillers {
		group.Go(func() {
			if errs[i] = w.fill(ctx, p, &next, n); errs[i] != nil {
				cancel()
			}
		})
	}
	last, err := w.receive(ctx, p, n)
	r := ran{batches: n, elapsed: time.Since(start), cpu: CPUTime() - cpu}
	if err != nil {
		cancel()
	}
	group.Wait()
	errs[w.fillers] = err
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	err = verify(last, w.l, seed)
	for _, b := range last {
		b.Release()
	}
	return r, err
}

// fill fills and submits batches until n have been submitted in total.
func (w *whole) fill(ctx context.Context, p *streams.Pipeline, next *atomic.Int64, n int) error {
	for next.Add(1) <= int64(n) {
		b, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		for _, payload := range w.sets[b.Slot()] {
			if err := appendTo(b, payload); err != nil {
				return err
			}
		}
		if err := b.Submit(streams.ClosedByBytes); err != nil {
			return err
		}
	}
	return nil
}

// receive receives n batches. It releases all except the last ones, one per slot, which no other goroutine waits for,
// and returns those.
func (w *whole) receive(ctx context.Context, p *streams.Pipeline, n int) (last []*streams.Batch, err error) {
	for i := range n {
		b, _, err := receive(ctx, p)
		if err != nil {
			return nil, err
		}
		w.f.recent.note(b.ReadRecord())
		if n-i > p.Slots() {
			b.Release()
			continue
		}
		last = append(last, b)
	}
	return last, nil
}
