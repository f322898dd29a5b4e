package broker

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// latencyEntries are the rows that show how long a payload takes at a low rate.
var latencyEntries = []bench.Entry{
	{Name: "latency", Shows: "Millrace with 1,000 payloads of 1 KiB per second: from a payload's arrival until its result is stored"},
	{Name: "latency-null", Shows: "the same for null-async"},
}

const (
	latencyBytes = 1 << 10
	latencyEvery = time.Millisecond

	// latencyLeast is the minimum number of payloads of a round, large enough for a 99th percentile.
	latencyLeast = 300
)

// runLatency measures the latency of Millrace and of the worker that computes nothing.
func (b *Bench) runLatency(ctx context.Context, session *bench.Session) error {
	s, err := b.open(ctx, session)
	if err != nil {
		return err
	}
	var all []*bench.Case
	for _, list := range operatorLists {
		all = append(all, s.latency(session, s.connections.sharedDelivery(session, bench.Parse(list)).named(latencyEntries[0].Name)))
	}
	all = append(all, s.latency(session, nullAsync.named(latencyEntries[1].Name)))
	if err := session.Measure(ctx, all...); err != nil {
		return err
	}
	session.Report(all...)
	return nil
}

// latency returns the latency case of a kind of worker.
func (s *server) latency(session *bench.Session, k kind) *bench.Case {
	n := max(int(session.Turn()/latencyEvery), latencyLeast)
	measure := func(ctx context.Context, c *bench.Case, seed uint64) error {
		var took samples
		slow := k
		slow.later, slow.make = true, func(func(time.Duration)) worker { return &atLowRate{worker: k.make(took.add)} }
		if _, err := s.round(ctx, slow, load{n, unframed{seed, latencyBytes}}); err != nil {
			return err
		}
		c.Add(figureLatency, "s", bench.Percentile(took.seconds, 0.5))
		c.Add(figureLatencyP99, "s", bench.Percentile(took.seconds, 0.99))
		return nil
	}
	return &bench.Case{Row: row(session, k, latencyBytes), Measure: measure}
}

// atLowRate is a worker that receives payloads one by one, published while it runs.
type atLowRate struct {
	worker
	server *server
}

func (w *atLowRate) ready(ctx context.Context, s *server, l load) error {
	w.server = s
	return w.worker.ready(ctx, s, l)
}

func (w *atLowRate) run(ctx context.Context, l load) error {
	g := newErrGroup(ctx)
	g.start(func(ctx context.Context) error { return w.server.publishSlowly(ctx, l) })
	g.start(func(ctx context.Context) error { return w.worker.run(ctx, l) })
	return g.wait()
}

// publishSlowly stores a payload of l every latencyEvery by the clock. A late payload does not delay the next ones.
func (s *server) publishSlowly(ctx context.Context, l load) error {
	start := time.Now()
	for i := range l.n {
		if err := pause(ctx, time.Until(start.Add(time.Duration(i)*latencyEvery))); err != nil {
			return err
		}
		if _, err := s.js.PublishMsgAsync(&nats.Msg{Subject: subject(i), Data: l.message(nil, i)}, jetstream.WithStallWait(answerTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// samples collects durations from several goroutines.
type samples struct {
	mu      sync.Mutex
	seconds []float64
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	s.seconds = append(s.seconds, d.Seconds())
	s.mu.Unlock()
}
