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

// whole measures a pipeline as the worker uses it: while the clock runs, several goroutines acquire batches, fill them
// and submit them, and one receives and releases them.
type whole struct {
	f       *flow
	l       *documents
	fillers int
	sets    []documentSet // one for each slot; batches use them in turn
	in      []int         // the set in each slot's batch, written by the goroutine that fills it before it submits
}

// documentSet is the payloads of one batch, made before the clock starts.
type documentSet struct {
	seed     uint64
	memory   []byte
	payloads [][]byte // parts of memory
}

// maxFillers bounds the goroutines that fill, because the worker has few batchers.
const maxFillers = 8

// whole makes a case that measures the whole path of l's payloads, including Append.
func (t *target) whole(name string, l *documents) *Case {
	c, f := t.flow(name, l, t.schedule())
	w := &whole{f: f, l: l, fillers: min(maxFillers, runtime.GOMAXPROCS(0))}
	c.Measure = w.measure
	return c
}

func (w *whole) measure(ctx context.Context, c *Case, seed uint64) error {
	return w.f.withPipeline(func(p *streams.Pipeline) error {
		w.prepare(p.Slots(), seed)
		return w.f.timed(c, p, func(n int) (ran, error) { return w.run(ctx, p, n) })
	})
}

// prepare makes the payloads of n batches. Rounds share the memory, so that no garbage is collected while the clock runs.
func (w *whole) prepare(n int, seed uint64) {
	w.in = make([]int, n)
	for len(w.sets) < n {
		w.sets = append(w.sets, documentSet{memory: make([]byte, w.l.total)})
	}
	for i := range w.sets {
		set := &w.sets[i]
		set.seed, set.payloads = derive(seed, i), set.payloads[:0]
		rest := set.memory
		for j, size := range w.l.sizes(set.seed) {
			Document(rest[:size], set.seed, j)
			set.payloads, rest = append(set.payloads, rest[:size]), rest[size:]
		}
	}
}

// run takes n batches, at least one for each slot, the whole path. When the clock has stopped, it checks the last batch
// of each slot and releases it.
func (w *whole) run(ctx context.Context, p *streams.Pipeline, n int) (ran, error) {
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
	return r, w.check(last)
}

// fill fills and submits batches until n have been taken.
func (w *whole) fill(ctx context.Context, p *streams.Pipeline, next *atomic.Int64, n int) error {
	for {
		i := next.Add(1) - 1
		if i >= int64(n) {
			return nil
		}
		b, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		set := int(i) % len(w.sets)
		w.in[b.Slot()] = set
		for _, payload := range w.sets[set].payloads {
			if err := appendTo(b, payload); err != nil {
				return err
			}
		}
		if err := b.Submit(streams.ClosedByBytes); err != nil {
			return err
		}
	}
}

// receive takes n batches back. It releases all but the last one of each slot, which no batch needs any more, and returns
// those.
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

// check compares batches with the reference and releases them.
func (w *whole) check(last []*streams.Batch) error {
	err := onAllCores(len(last), func(i int) error {
		b := last[i]
		if err := w.l.verify(b, w.sets[w.in[b.Slot()]].seed); err != nil {
			return fmt.Errorf("slot %d: %w", b.Slot(), err)
		}
		return nil
	})
	for _, b := range last {
		b.Release()
	}
	return err
}
