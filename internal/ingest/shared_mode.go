package ingest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// sharedSettings are what shared delivery needs. The worker keeps ownership.
type sharedSettings struct {
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections
	JS       jetstream.JetStream
	Consumer jetstream.Consumer
	Size     pull.Size // of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge

	Limit   int           // deliveries of a payload before it is tried alone
	Linger  time.Duration // how long the oldest payload of a batch waits for more
	Confirm bool          // have the server confirm every acknowledgement

	Log      *slog.Logger
	Observer sharedObserver
	Batches  inflight.BatchObserver  // nil for none
	Records  inflight.RecordObserver // nil for none
	Stalls   stallWatch
}

// stallWatch is told the state of the consumer; see stalls.
type stallWatch interface {
	saw(consumer int, info *jetstream.ConsumerInfo, excused bool, now time.Time)
	unknown(consumer int, now time.Time)
}

// sharedMode is shared delivery: any number of workers pull from one consumer, and each input is acknowledged by itself.
type sharedMode struct {
	s         sharedSettings
	ends      *acknowledger
	admission *admission
	bisector  *quarantine.Bisector
	window    *inflight.Window
	buffers   *inflight.FreeList[*results.Buffers]
	handing   atomic.Bool // the source does not pull because a delivery waits for room or is tried
	unread    unread      // received and not processed when intake ended
}

func newSharedMode(s sharedSettings) *sharedMode {
	slots := 0
	for _, p := range s.Pipes {
		slots += p.Slots()
	}
	config := s.Consumer.CachedInfo().Config
	m := &sharedMode{
		s: s, window: inflight.NewWindow(len(s.Conns.ForResults(false))),
		buffers: inflight.NewFreeList(inflight.BatchesPerSlot*slots, func() *results.Buffers { return &results.Buffers{} }),
		ends: &acknowledger{
			ledger: newLedger(), pool: s.Pool, results: s.Results, judge: s.Judge, batches: s.Batches, records: s.Records, log: s.Log,
			confirm: s.Confirm, confirming: make(chan struct{}, confirmAtOnce), deadLetters: make(chan struct{}, deadLetterWindow),
		},
	}
	m.admission = &admission{
		ends: m.ends, maxBytes: inflight.SmallestBatch(s.Pipes), limit: s.Limit, last: config.MaxDeliver,
		levels: quarantine.Levels{Full: fullBatch(s.Pipes), Limit: s.Limit},
	}
	m.bisector = quarantine.NewBisector(m.isolation(), slots)
	return m
}

// inFlight is how many deliveries are not settled.
func (m *sharedMode) inFlight() int { return m.ends.ledger.size() }

// fullBatch is how many payloads every pipeline's batch can hold.
func fullBatch(pipes []*streams.Pipeline) int {
	full := pipes[0].BatchPayloads()
	for _, p := range pipes {
		full = min(full, p.BatchPayloads())
	}
	return full
}

// isolation is what quarantine needs.
func (m *sharedMode) isolation() quarantine.Isolation {
	return quarantine.Isolation{
		Pool: m.s.Pool, Judge: m.s.Judge, Ends: m.ends, Levels: m.admission.levels, Limit: m.s.Limit, Log: m.s.Log,
		Attempts: &quarantine.Attempts{JS: m.s.JS, Consumer: m.s.Consumer, Stream: m.s.Consumer.CachedInfo().Stream, Log: m.s.Log},
	}
}

// run pulls until intake ends, and finishes what it has until drain ends. It passes an error that ends it sooner to stop.
func (m *sharedMode) run(intake, drain context.Context, stop context.CancelCauseFunc) {
	settled := make(chan struct{})
	var settlers, intakers sync.WaitGroup
	m.startSettlers(&settlers, settled, drain)
	settlers.Go(func() { m.bisector.Run(settled, drain) })
	defer m.startBacklogWatch()()
	m.startIntake(&intakers, intake, drain, stop)

	intakers.Wait()
	m.giveBackUnread()
	m.s.Pool.AwaitIdle(drain)
	close(settled)
	settlers.Wait()
	m.ends.publishing.Wait()
	m.s.Pool.Abandon(func(b *inflight.Batch) { m.ends.giveBackAll(b, context.Canceled) })
}

// newSource makes the source that pulls from the consumer.
func (m *sharedMode) newSource(drain context.Context) *source {
	nc, pool := m.s.Conns[0], m.s.Pool
	src := &source{
		nc: nc, conns: m.s.Conns, consumer: m.s.Consumer, size: m.s.Size, limit: m.s.Size.Limit(nc), out: inflight.NewQueue(inflight.QueueMost),
		handing: &m.handing, ledger: m.ends.ledger, hard: drain, log: m.s.Log, observer: m.s.Observer,
		unread: m.unread.add, hold: pool.Hold, force: pool.Force, admit: func(d *inflight.Delivery) bool { return m.admission.admit(drain, d) },
	}
	horizon := m.s.Consumer.CachedInfo().Config.AckWait
	src.isolated = quarantine.NewController(drain, src, m.s.Pipes, m.admission.maxBytes, horizon, m.isolation())
	return src
}

// startIntake runs the source and the batchers of each pipeline. Whichever fails stops the intake of all.
func (m *sharedMode) startIntake(wg *sync.WaitGroup, intake, drain context.Context, stop context.CancelCauseFunc) {
	src := m.newSource(drain)
	wg.Go(func() {
		if err := src.run(intake, drain); err != nil {
			stop(err)
		}
	})
	for _, p := range m.s.Pipes {
		f := m.s.Pool.NewBatcher(p, src.out, m.s.Linger, m.window, m.unread.add)
		for range inflight.Batchers(p) {
			wg.Go(func() {
				if err := m.runBatcher(drain, f); err != nil {
					stop(err)
				}
				f.Leave()
			})
		}
		wg.Go(func() {
			select {
			case <-p.Over():
				stop(p.Err())
			case <-intake.Done():
			}
		})
	}
}

// startSettlers runs as many settlers for each pipeline as there can be batches in flight, so that no batch keeps
// its buffers while the results of others wait for the server.
func (m *sharedMode) startSettlers(wg *sync.WaitGroup, done <-chan struct{}, drain context.Context) {
	for _, p := range m.s.Pipes {
		for range inflight.BatchesPerSlot * p.Slots() {
			wg.Go(func() { (&settler{m: m, pipe: p}).run(done, drain) })
		}
	}
}

// runBatcher fills and submits batches, in turn with others, until the deliveries, the drain or the pipeline end. It returns an error only
// for the latter.
func (m *sharedMode) runBatcher(hard context.Context, f *inflight.Batcher) error {
	for {
		g, err := m.s.Pool.Reserve(hard, f.Pipe)
		switch {
		case err == nil:
		case hard.Err() != nil:
			return nil
		default:
			return err
		}
		b, why, err := f.Next(g)
		if b == nil {
			return err
		}
		if err := m.submit(f, b, g, why); err != nil {
			return err
		}
	}
}

// submit submits a filled batch. The bisector takes a batch that the device refuses. Only the end of the pipeline is an error.
func (m *sharedMode) submit(f *inflight.Batcher, b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	err := m.s.Pool.Submit(b, g, f.Window, why)
	if err == nil {
		return nil
	}
	b.Release()
	m.bisector.Refused(f.Pipe, g, err)
	if streams.Ended(err) {
		return err
	}
	return nil
}

// unread collects deliveries that no batch takes any more. They are given back when the pull has ended: sooner, the server would deliver
// them to this worker again.
type unread struct {
	mu   sync.Mutex
	list []inflight.Delivery
}

func (u *unread) add(d inflight.Delivery) {
	u.mu.Lock()
	u.list = append(u.list, d)
	u.mu.Unlock()
}

// giveBackUnread gives the unread deliveries back, to be redelivered at once.
func (m *sharedMode) giveBackUnread() {
	for i := range m.unread.list {
		m.ends.nak(&m.unread.list[i], 0)
		m.s.Pool.Release(&m.unread.list[i])
	}
	m.unread.list = nil
}

// startBacklogWatch keeps the observer's backlog current. It returns a function that stops it.
func (m *sharedMode) startBacklogWatch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			asked, done := context.WithTimeout(ctx, backlogEvery)
			info, err := m.s.Consumer.Info(asked)
			done()
			if err == nil {
				m.s.Observer.Pending(info.NumPending)
				m.s.Stalls.saw(0, info, m.handing.Load(), time.Now())
			} else {
				m.s.Stalls.unknown(0, time.Now())
			}
			if !retry.Sleep(ctx, backlogEvery) {
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
