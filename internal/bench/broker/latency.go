package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// latencyEntries are the rows that tell how long a payload is on its way when there are few.
var latencyEntries = []bench.Entry{
	{Name: "latency", Shows: "Millrace with 1,000 payloads of 1 KiB a second: from a payload's arrival until its result is stored"},
	{Name: "latency-null", Shows: "the same of null-async"},
}

const (
	latencyBytes = 1 << 10
	latencyEvery = time.Millisecond

	// latencyLeast is how many payloads a round has at least, for a 99th percentile to mean something.
	latencyLeast = 300
)

// runLatency measures Millrace beside the worker that computes nothing.
func (b *Bench) runLatency(ctx context.Context, t *bench.Track) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	s.note(t)
	var all []*bench.Contender
	for _, list := range operatorLists {
		k := s.links.together(t, parse(list))
		k.name = latencyEntries[0].Name
		all = append(all, s.latency(t, k, func(told func(time.Duration)) mover {
			m := newMillrace(t, k.ops, s.links.shared)
			m.latency = told
			return m
		}))
	}
	null := kind{name: latencyEntries[1].Name, make: func() mover { return &nullAsync{} }}
	all = append(all, s.latency(t, null, func(told func(time.Duration)) mover {
		return &nullAsync{stored: func(since time.Time) { told(time.Since(since)) }}
	}))
	if err := t.Race(ctx, all...); err != nil {
		return err
	}
	t.Finish(all...)
	return nil
}

// latency is the contender of a kind; from makes its worker, which tells what each payload took.
func (s *site) latency(t *bench.Track, k kind, from func(told func(time.Duration)) mover) *bench.Contender {
	n := max(int(t.Turn()/latencyEvery), latencyLeast)
	return t.Contender(row(t, k, latencyBytes), false, func(ctx context.Context, c *bench.Contender, seed uint64) error {
		l := load{seed: seed, n: n, size: latencyBytes}
		var took samples
		k.later, k.make = true, func() mover { return &trickle{mover: from(took.add)} }
		if _, err := s.round(ctx, k, l); err != nil {
			return err
		}
		c.Add(figureLatency, "s", took.quantile(0.5))
		c.Add(figureLatencyP99, "s", took.quantile(0.99))
		return nil
	})
}

// trickle is a mover to which payloads come one by one while it runs.
type trickle struct {
	mover
	site *site
}

func (w *trickle) ready(ctx context.Context, s *site, l load) error {
	w.site = s
	return w.mover.ready(ctx, s, l)
}

func (w *trickle) run(ctx context.Context, l load) error {
	c := newCrew(ctx)
	c.do(func(ctx context.Context) error { return w.site.drip(ctx, l) })
	c.do(func(ctx context.Context) error { return w.mover.run(ctx, l) })
	return c.wait()
}

// drip stores a payload of l every latencyEvery by the clock: one that is late does not make the next ones late too.
func (s *site) drip(ctx context.Context, l load) error {
	start := time.Now()
	for i := range l.n {
		if err := pause(ctx, time.Until(start.Add(time.Duration(i)*latencyEvery))); err != nil {
			return err
		}
		if _, err := s.js.PublishMsgAsync(&nats.Msg{Subject: subject(i), Data: l.payload(nil, i)}, jetstream.WithStallWait(patience)); err != nil {
			return err
		}
	}
	return nil
}

// samples are durations that several goroutines add to.
type samples struct {
	mu   sync.Mutex
	list []time.Duration
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	s.list = append(s.list, d)
	s.mu.Unlock()
}

// quantile is the q-th quantile, 0 to 1, in seconds. There must be samples.
func (s *samples) quantile(q float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.list)
	return s.list[int(q*float64(len(s.list)-1))].Seconds()
}
