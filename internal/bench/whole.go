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

// whole measures a pipeline as the worker uses it: batches are acquired, filled by several goroutines while the
// clock runs, submitted, received and released.
type whole struct {
	f       *flow
	l       *documents
	fillers int
	sets    []documentSet // what takes turns in the batches; one for each slot
	in      []int         // the set that each slot's batch holds; a slot's filler writes it before it submits
}

// documentSet is the payloads of one batch, made before the clock runs.
type documentSet struct {
	seed     uint64
	memory   []byte
	payloads [][]byte // parts of memory
}

// maxFillers bounds the goroutines that fill, as the worker's batchers are few.
const maxFillers = 8

// whole makes a contender of the whole way of l's payloads, Append included.
func (t *target) whole(group, name string, l *documents) *contender {
	c, f := t.flow(group, name, l, t.schedule())
	w := &whole{f: f, l: l, fillers: min(maxFillers, runtime.GOMAXPROCS(0))}
	c.measure = w.measure
	return c
}

func (w *whole) measure(ctx context.Context, c *contender, seed uint64) (err error) {
	p, err := streams.New(w.f.t.dev, w.f.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	w.prepare(p.Slots(), seed)
	run := func(n int) (time.Duration, error) {
		r, err := w.run(ctx, p, n)
		return r.elapsed, err
	}
	if w.f.batches == 0 {
		w.f.batches, err = pace(w.f.t.turn(), p.Slots(), run)
	} else {
		_, err = run(p.Slots())
	}
	if err != nil {
		return err
	}
	before, err := p.Stats()
	if err != nil {
		return err
	}
	w.f.recent.forget()
	r, err := w.run(ctx, p, w.f.batches)
	if err != nil {
		return err
	}
	after, err := p.Stats()
	if err != nil {
		return err
	}
	w.f.enter(c, p, r, before, after)
	return nil
}

// prepare makes the payloads of n batches, in memory that rounds share: what one left behind would be collected while
// the next one's clock runs.
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

// run takes n batches, at least one for each slot, the whole way. The last of each slot is checked once the clock
// has stopped, and then released.
func (w *whole) run(ctx context.Context, p *streams.Pipeline, n int) (ran, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		group sync.WaitGroup
		next  atomic.Int64
		errs  = make([]error, w.fillers+1)
	)
	cpu, start := cpuTime(), time.Now()
	for i := range w.fillers {
		group.Go(func() {
			if errs[i] = w.fill(ctx, p, &next, n); errs[i] != nil {
				cancel()
			}
		})
	}
	last, err := w.receive(ctx, p, n)
	r := ran{batches: n, elapsed: time.Since(start), cpu: cpuTime() - cpu}
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

// fill is one filler: it takes the next batch until n were taken.
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

// receive takes n batches back and releases them, but for as many of the last as there are slots. It returns those:
// every batch that is still to be filled has a slot without them.
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
