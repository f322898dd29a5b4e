package lease

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// leaseWorker is a worker of the model. It runs real leases one after another, with simulations of the server, host
// and batches.
type leaseWorker struct {
	m    *leaseModel
	slot int
	id   string

	device     *modelDevice
	pool       *inflight.Pool
	judge      *quarantine.Judge
	memory     int64 // limit of the pool; 0 for none
	maxPayload int64 // maximum size of a message; small if results have parts

	start chan context.Context // receives a context each time the worker gets the partition
	stop  context.CancelFunc   // withdraws the partition
	wants bool

	life, kill  context.CancelFunc
	drain       context.Context
	dead        bool
	lost        error // reason why its device is lost; nil if it isn't
	frozenUntil int   // step until which it is frozen
	pulls       []*modelPull
	states      *states // nil without a stateful operator
	calls       int     // number of calls so far
	leases      int     // number of leases so far
	packs       int     // number of batches so far; only with shared delivery
	over        bool
}

// modelLease simulates the server, the device and the owner of one lease.
type modelLease struct {
	modelApart
	noOwner
	*results.Writer

	w          *leaseWorker
	l          *lease
	n          int
	repaired   bool   // whether it has repaired an over-acknowledged consumer
	owner      string // owner in the last consumer info
	annotated  uint64 // last delivery according to the annotation that the lease read before it began
	floor      uint64 // acknowledgement floor in the same info
	holds      bool   // whether it has begun; before that, other goroutines write no annotations
	knowsOther bool   // whether another client's pin was in the last consumer info
	packs      int    // number of batches; only the submitter uses it
	first      uint64 // first input of the batch that is being stored, or 0
	opened     int    // step before it took over the commit markers; 0 without them
}

// run holds leases whenever this worker should own the partition, like Exclusive.keep and Exclusive.hold.
func (w *leaseWorker) run(life context.Context) {
	var following sync.WaitGroup
	following.Go(func() { w.states.follow(life) })
	following.Go(func() { w.states.keepTrimmed(life) })
	for !w.isGone() && life.Err() == nil {
		select {
		case ctx := <-w.start:
			w.m.count(1)
			if w.m.shared {
				w.holdShared(ctx)
			} else {
				w.hold(ctx)
			}
			w.m.count(-1)
		case <-life.Done():
		}
	}
	w.m.mu.Lock()
	w.over = true
	w.m.mu.Unlock()
	following.Wait()
	w.states.closeAll()
}

func (w *leaseWorker) hold(ctx context.Context) {
	if !w.states.reserve(ctx, 0) {
		return
	}
	defer w.states.free(0)
	for attempt := 1; ctx.Err() == nil && !w.isGone(); attempt++ {
		e := w.newLease()
		err := e.l.run(ctx, w.drain)
		w.m.ended(e, err)
		w.settled(e)
		if ctx.Err() != nil || w.isGone() {
			return
		}
		if e.l.acks.progressed {
			attempt = 1
		}
		retry.Sleep(ctx, retry.Delay(attempt))
	}
}

// settled checks that a lease that could finish its batches has freed all memory.
func (w *leaseWorker) settled(e *modelLease) {
	if w.isGone() || w.drain.Err() != nil {
		return
	}
	if used, batches := w.pool.Memory().Used, w.pool.InFlight(); used != 0 || batches != 0 {
		w.m.violate("lease %d of %s has ended, and %d bytes and %d batches are in flight", e.n, w.id, used, batches)
	}
}

// isGone reports whether the worker is dead, or must end because its device is lost.
func (w *leaseWorker) isGone() bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.dead || w.lost != nil
}

// devices returns Devices that pack nothing, because the model packs itself.
func (w *leaseWorker) devices() *Devices {
	d := NewDevices(DeviceOptions{Pool: w.pool, Judge: w.judge})
	d.Pipes = []*streams.Pipeline{w.device.pipe}
	return d
}

func (w *leaseWorker) newLease() *modelLease {
	w.leases++
	e := &modelLease{w: w, n: w.leases, modelApart: modelApart{w: w}}
	e.Writer = w.newWriter(e)
	o := &Options{
		Topology: topology.Topology{Stream: "IN", Subjects: []string{"ingest.>"}}, Devices: w.devices(),
		Limit: modelLimit, Confirm: w.m.confirms, Observer: e,
	}
	if w.states != nil {
		o.State = w.states.StateOptions
	}
	e.l = newLease(leaseState{
		inputs: inputs{o: o, server: e, store: e, busy: new(atomic.Bool), log: w.m.log}, id: w.id, device: e, pipe: w.device.pipe,
		window: inflight.NewOrderedWindow(new(atomic.Int32)), owner: e, openCommits: e.openCommits,
	})
	return e
}

// modelCall is a worker's request to the server or the device. It waits until the scheduler picks it.
type modelCall struct {
	w      *leaseWorker
	what   string
	number int
	apply  func() error
	done   chan error
	gone   bool // whether the caller has stopped waiting
	local  bool // whether the call doesn't use the network and can't be lost
}

// sortCalls makes the order of calls independent of the order in which goroutines ran.
func (m *leaseModel) sortCalls() {
	slices.SortFunc(m.calls, func(a, b *modelCall) int {
		return cmp.Or(cmp.Compare(a.w.id, b.w.id), cmp.Compare(a.what, b.what), cmp.Compare(a.number, b.number))
	})
}

// pick returns the index of a call that can be answered now, or -1 if there is none.
func (m *leaseModel) pick() int {
	m.sortCalls()
	var ready []int
	for i, c := range m.calls {
		if !m.isFrozen(c.w) {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 {
		return -1
	}
	return ready[m.random.IntN(len(ready))]
}

// callTimeout is the time for which a client waits for an answer if its context has no deadline.
const callTimeout = 5 * time.Second

// call waits until the scheduler has applied the call, or ctx ends.
func (w *leaseWorker) call(ctx context.Context, what string, local bool, apply func() error) error {
	m := w.m
	c := &modelCall{w: w, what: what, local: local, apply: apply, done: make(chan error, 1)}
	m.mu.Lock()
	w.calls++
	c.number = w.calls
	if w.dead {
		m.mu.Unlock()
		return errModelLost
	}
	m.calls = append(m.calls, c)
	m.mu.Unlock()
	if !local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	select {
	case err := <-c.done:
		return err
	default:
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		m.mu.Lock()
		c.gone = true
		m.mu.Unlock()
		return ctx.Err()
	}
}

func (e *modelLease) Info(ctx context.Context) (info *jetstream.ConsumerInfo, err error) {
	err = e.w.call(ctx, "info", false, func() error { info = e.w.m.server.info(); return nil })
	if err != nil {
		return nil, err
	}
	pin, own := pinOf(info), e.l.partition.pinID()
	e.w.m.mu.Lock()
	e.knowsOther, e.owner = pin != "" && pin != own, info.Config.Metadata[annotationOwner]
	if !e.holds {
		e.annotated, e.floor = delivered(info.Config.Metadata), info.AckFloor.Stream
	}
	e.w.m.mu.Unlock()
	return info, nil
}

// known reports whether another client is pinned, and returns the annotated owner, as the lease last saw them.
func (e *modelLease) known() (other bool, owner string) {
	e.w.m.mu.Lock()
	defer e.w.m.mu.Unlock()
	return e.knowsOther, e.owner
}

func (e *modelLease) reset(ctx context.Context, sequence uint64) error {
	m := e.w.m
	m.did("repaired")
	m.notes.Lock()
	e.repaired = true
	clear(m.clean) // the server ignored acknowledgements
	m.notes.Unlock()
	return e.w.call(ctx, "reset", false, func() error { e.w.m.server.reset(sequence); return nil })
}

func (e *modelLease) redeliver(ctx context.Context, sequence, number uint64) error {
	return e.w.call(ctx, "redeliver", false, func() error { e.w.m.server.redeliver(sequence, number); return nil })
}

func (e *modelLease) Annotate(ctx context.Context, _ jetstream.ConsumerConfig, metadata map[string]string) error {
	if _, owner := e.known(); e.holds && owner != "" && owner != e.w.id && metadata[annotationOwner] != owner {
		e.w.m.violate("%s overwrites the annotations of %s", e.w.id, owner)
	}
	if at := delivered(metadata); at < e.floor {
		e.w.m.violate("%s annotates %d as the last delivery, and %d was acknowledged before", e.w.id, at, e.floor)
	}
	return e.w.call(ctx, "annotate", false, func() error { e.w.m.server.annotate(metadata); return nil })
}

func (e *modelLease) unpin(ctx context.Context) error {
	if other, _ := e.known(); other {
		e.w.m.violate("%s unpins another client", e.w.id)
	}
	return e.w.call(ctx, "unpin", false, func() error { e.w.m.server.pin = ""; e.w.m.did("unpinned"); return nil })
}

func (e *modelLease) reader() leaseReader { return e }

func (e *modelLease) read(ctx context.Context, from uint64) (raw *jetstream.RawStreamMsg, err error) {
	m := e.w.m
	err = e.w.call(ctx, "read", false, func() error {
		if m.did("read"); m.faults && m.random.IntN(50) == 0 {
			m.did("read failed silently")
			return nil
		}
		raw = m.server.read(from)
		return nil
	})
	return raw, err
}

func (e *modelLease) proveEnd(ctx context.Context, from uint64) error {
	return e.w.call(ctx, "prove", false, func() error {
		if e.w.m.server.read(from) != nil {
			return errModelUnread
		}
		return nil
	})
}

func (e *modelLease) message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming {
	return &modelMessage{m: e.w.m, e: e, number: number, sequence: raw.Sequence, deliveries: 1}
}

func (e *modelLease) receipt(sequence, number uint64) pull.AckToken {
	return &modelMessage{m: e.w.m, e: e, number: number, sequence: sequence}
}

func (e *modelLease) fetch(int, time.Duration, func(inflight.Incoming)) (came int, err error) {
	panic("only shared delivery fetches")
}

func (e *modelLease) flush(ctx context.Context) error {
	m := e.w.m
	m.mu.Lock()
	leaving := slices.ContainsFunc(e.w.pulls, func(p *modelPull) bool { return p.leaving })
	silent := e.w.dead || m.isFrozen(e.w)
	m.mu.Unlock()
	if !leaving && !silent {
		return nil // the message has no effect here
	}
	return e.w.call(ctx, "flush", false, func() error {
		for _, p := range e.w.pulls {
			if p.leaving {
				p.open = false
			}
		}
		return nil
	})
}

func (e *modelLease) pull() (leasePull, error) {
	m := e.w.m
	p := &modelPull{w: e.w, e: e, in: make(chan *modelMessage, 16*modelInputs), broken: make(chan error, 1), open: true, fresh: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.w.dead {
		m.server.pulls = append(m.server.pulls, p)
		e.w.pulls = append(e.w.pulls, p)
	}
	return p, nil
}

// The following methods implement leaseOwner and Observer.

func (e *modelLease) Pending(uint64)                       {}
func (e *modelLease) Unacknowledged(uint64)                {}
func (e *modelLease) Redelivered()                         { e.w.m.did("known") }
func (e *modelLease) StateReplayed(int)                    {}
func (e *modelLease) StateTrimFailed()                     {}
func (e *modelLease) Restarted()                           {}
func (e *modelLease) OperatorFault(inflight.OperatorFault) {}

func (e *modelLease) began() {
	e.holds = true
	e.w.m.did("lease begun")
	e.w.m.note("%s has the partition, lease %d", e.w.id, e.n)
}

func (e *modelLease) acknowledge(d *modelMessage) error {
	m := e.w.m
	m.acknowledging(e, d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.w.dead {
		m.acks = append(m.acks, modelAck{w: e.w, number: d.number, sequence: d.sequence})
	}
	return nil
}

func (e *modelLease) confirm(ctx context.Context, d *modelMessage) error {
	e.w.m.acknowledging(e, d)
	return e.w.call(ctx, "confirm", false, func() error {
		e.w.m.note("%s's acknowledgement %d of %d is confirmed", e.w.id, d.number, d.sequence)
		e.w.m.server.acknowledge(d.number, d.sequence)
		return nil
	})
}
