package lease

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/corpus"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func document(i int) []byte { return corpus.Text(uint64(i)+1, (i*997)%5000) }

type rig struct {
	*natstest.Rig
	topology topology.Topology
	ops      []operator.Operator
	events   *events
}

func newRig(t *testing.T, partitions int) *rig {
	t.Helper()
	return newRigOn(natstest.New(t), partitions)
}

// newRigOn provisions the streams on the server of at.
func newRigOn(at *natstest.Rig, partitions int) *rig {
	at.Helper()
	r := &rig{Rig: at, events: newEvents(), topology: topology.Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", Exclusive: true, Partitions: partitions,
		ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000,
	}}
	var err error
	if r.ops, err = operator.ParseList("crc32c,minhash?k=4&hashes=4"); err != nil {
		r.Fatal(err)
	}
	if err := topology.Provision(r.Ctx(), r.JS, r.topology, r.Log.Logger()); err != nil {
		r.Fatal(err)
	}
	return r
}

func (r *rig) publish(n int, payload func(i int) []byte) {
	r.Helper()
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i)} })
}

func (r *rig) consumer(p int) jetstream.Consumer {
	r.Helper()
	return r.Consumer(r.topology.Stream, topology.PartitionConsumer(r.topology.Consumer, p))
}

func (r *rig) partitionConfig(p int) jetstream.ConsumerConfig {
	r.Helper()
	return r.consumer(p).CachedInfo().Config
}

func (r *rig) changePartition(c jetstream.ConsumerConfig) {
	r.Helper()
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.topology.Stream, c); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) hostPipeline() *streams.Pipeline {
	r.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.Errorf("closing the device: %v", err)
		}
	})
	p, err := streams.New(d, streams.Options{Operators: r.ops, Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1024, ScratchLimit: 64 << 20})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.Errorf("closing the pipeline: %v", err)
		}
	})
	return p
}

// heldPipeline returns a pipeline on a device that computes nothing until open is called.
func (r *rig) heldPipeline(batchPayloads int) (p *streams.Pipeline, open func()) {
	r.Helper()
	d, err := sim.Open(sim.Options{Kernels: operator.HostKernels()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.Errorf("closing the device: %v", err)
		}
	})
	p, err = streams.New(d, streams.Options{Operators: r.ops, Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: batchPayloads, ScratchLimit: 64 << 20})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.Errorf("closing the pipeline: %v", err)
		}
	})
	return p, sync.OnceFunc(d.Hold())
}

func (r *rig) mode(pipe *streams.Pipeline) *Exclusive {
	r.Helper()
	nc, err := natsconn.Open(natsconn.Server{URL: r.URL}, "millrace-test", r.Log.Logger(), func() {})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	js := r.JetStream(nc)
	pipes, conns, log := []*streams.Pipeline{pipe}, natsconn.Connections{nc}, r.Log.Logger()
	written, err := results.NewWriter(r.Ctx(), conns, results.Options{
		Topology: r.topology, Operators: r.ops, Format: operator.JSON, AckWait: r.topology.AckWait,
		Log: log, Observer: r.events, Progress: func() {},
	})
	if err != nil {
		r.Fatal(err)
	}
	pool, err := inflight.NewPool(pipes, memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: r.ops}, MaxPayload: nc.MaxPayload()})
	if err != nil {
		r.Fatal(err)
	}
	m, err := newExclusive(Options{
		Topology: r.topology, Pipes: pipes, Conns: conns, JS: js,
		Size: func(c jetstream.Consumer) pull.Size { return pull.NewSize(c.CachedInfo().Config) },
		Pool: pool, Results: written, Judge: quarantine.NewJudge(pipes, r.topology.MaxDeliver, func() {}, log),
		Linger: time.Millisecond, Log: log, Observer: r.events, Stalls: stall.NewDetector(r.topology.Partitions, log, r.events),
	})
	if err != nil {
		r.Fatal(err)
	}
	return m
}

type running struct {
	*Exclusive
	t      testing.TB
	intake context.Context
	stop   context.CancelCauseFunc
	giveUp context.CancelFunc // ends the drain
	done   chan struct{}
}

func (r *rig) run(pipe *streams.Pipeline) *running {
	r.Helper()
	run := &running{Exclusive: r.mode(pipe), t: r.TB, done: make(chan struct{})}
	run.intake, run.stop = context.WithCancelCause(context.Background())
	drainCtx, giveUp := context.WithCancel(context.Background())
	run.giveUp = giveUp
	go func() {
		defer close(run.done)
		run.Run(run.intake, drainCtx, run.stop)
	}()
	r.Cleanup(run.drain)
	return run
}

// drain stops the worker and waits for it. After 10 s the worker abandons the batches in flight.
func (run *running) drain() {
	run.t.Helper()
	run.stop(nil)
	defer time.AfterFunc(10*time.Second, run.giveUp).Stop()
	select {
	case <-run.done:
	case <-time.After(natstest.Patience):
		run.t.Error("the worker did not stop")
	}
}

// wantAll checks that every input from 1 to n has exactly one result, which is correct.
func (r *rig) wantAll(n int, payload func(i int) []byte) {
	r.Helper()
	c, err := r.JS.CreateConsumer(r.Ctx(), r.topology.ResultStream, jetstream.ConsumerConfig{FilterSubject: "results.>", AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		r.Fatal(err)
	}
	if left := c.CachedInfo().NumPending; left != uint64(n) {
		r.Fatalf("%d results are stored, want %d", left, n)
	}
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(natstest.Patience))
	if err != nil {
		r.Fatal(err)
	}
	seen := map[int]bool{}
	for m := range batch.Messages() {
		sequence, err := strconv.Atoi(m.Headers().Get(results.HeaderSequence))
		if err != nil || seen[sequence] || sequence < 1 || sequence > n {
			r.Fatalf("a result is of input %d, of which there was one before: %t, %v", sequence, seen[sequence], err)
		}
		seen[sequence] = true
		if err := operator.JSON.Check(r.ops, payload(sequence-1), m.Data()); err != nil {
			r.Errorf("result of input %d: %v", sequence, err)
		}
	}
	if len(seen) != n {
		r.Errorf("results of %d inputs, want %d", len(seen), n)
	}
}

type events struct {
	mu                             sync.Mutex
	stored, redeliveries, restarts int
	backlog, unacknowledged        uint64
	changed                        chan struct{}
}

func newEvents() *events { return &events{changed: make(chan struct{}, 1)} }

func (e *events) note(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (e *events) Settled(o inflight.Outcome, _, _ int, _, _ time.Duration) {
	if o == inflight.Published || o == inflight.Duplicate {
		e.note(func() { e.stored++ })
	}
}

func (e *events) Frame(inflight.FrameStats) {}

func (e *events) OperatorFault(inflight.OperatorFault) {}

func (e *events) DeadLettered(inflight.DeadLetter) {}

func (e *events) PayloadLeftOut() {}

func (e *events) Pending(n uint64)        { e.note(func() { e.backlog = n }) }
func (e *events) Unacknowledged(n uint64) { e.note(func() { e.unacknowledged = n }) }
func (e *events) Redelivered()            { e.note(func() { e.redeliveries++ }) }
func (e *events) Restarted()              { e.note(func() { e.restarts++ }) }
func (e *events) Stalled(int)             {}

func (e *events) waiting() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.backlog
}

// underWay returns the number of messages that are delivered and not acknowledged.
func (e *events) underWay() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unacknowledged
}

func (e *events) disturbances() (restarts, redeliveries int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restarts, e.redeliveries
}

func (e *events) awaitStored(t *testing.T, n int) {
	t.Helper()
	for deadline := time.After(natstest.Patience); ; {
		e.mu.Lock()
		stored := e.stored
		e.mu.Unlock()
		if stored >= n {
			return
		}
		select {
		case <-e.changed:
		case <-deadline:
			t.Fatalf("%d results are stored after %v, want %d", stored, natstest.Patience, n)
		}
	}
}
