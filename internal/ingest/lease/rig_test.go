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
	"millrace/internal/device"
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

// someBytes returns payloads of n bytes.
func someBytes(n int) func(int) []byte {
	return func(i int) []byte { return corpus.Text(uint64(i)+1, n) }
}

type paperMsg struct{ inflight.Message }

func (m *paperMsg) Data() []byte { return nil }

type rig struct {
	*natstest.Rig
	topology topology.Topology
	ops      []operator.Operator
	events   *events
}

// newRig returns a rig with the streams of a topology that change, which may be nil, modifies. With 0 partitions, it has shared delivery.
func newRig(t *testing.T, partitions int, change ...func(*topology.Topology)) *rig {
	t.Helper()
	return newRigOn(natstest.New(t), partitions, change...)
}

// newRigOn provisions the streams on the server of at.
func newRigOn(at *natstest.Rig, partitions int, change ...func(*topology.Topology)) *rig {
	at.Helper()
	r := &rig{Rig: at, events: newEvents(), topology: topology.Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", Exclusive: partitions > 0, Partitions: partitions,
		ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000,
	}}
	for _, f := range change {
		f(&r.topology)
	}
	r.ops = natstest.Must(operator.ParseList("crc32c,minhash?k=4&hashes=4"))(r)
	natstest.OK(r, topology.Provision(r.Ctx(), r.JS, r.topology, r.Log.Logger()))
	return r
}

// open connects to url like a worker, until the test ends.
func (r *rig) open(url string) *nats.Conn {
	r.Helper()
	nc := natstest.Must(natsconn.Open(natsconn.Server{URL: url}, "millrace-test", r.Log.Logger(), func() {}))(r)
	r.Cleanup(nc.Close)
	return nc
}

func (r *rig) publish(n int, payload func(i int) []byte) {
	r.Helper()
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i)} })
}

// consumer returns the consumer of a partition, or with shared delivery the only one.
func (r *rig) consumer(p int) jetstream.Consumer {
	r.Helper()
	name := r.topology.Consumer
	if r.topology.Exclusive {
		name = topology.PartitionConsumer(name, p)
	}
	return r.Consumer(r.topology.Stream, name)
}

// input receives the next input of shared delivery like a worker.
func (r *rig) input() inflight.Delivery {
	r.Helper()
	var d inflight.Delivery
	request := pull.Request{Stream: r.topology.Stream, Consumer: r.topology.Consumer, Bytes: 1 << 20}
	came, err := pull.Fetch(r.NC, request, 1, natstest.Patience, func(m *pull.Message) {
		d = natstest.Must(inflight.NewDelivery(m, time.Now()))(r)
	})
	if came != 1 || err != nil {
		r.Fatalf("%d inputs came: %v", came, err)
	}
	return d
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
	return r.pipeline(natstest.Must(host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()}))(r), 2, 1024)
}

// heldPipeline returns a pipeline on a device that computes nothing until open is called.
func (r *rig) heldPipeline(batchPayloads int) (p *streams.Pipeline, open func()) {
	r.Helper()
	d := natstest.Must(sim.Open(sim.Options{Kernels: operator.HostKernels()}))(r)
	return r.pipeline(d, 1, batchPayloads), sync.OnceFunc(d.Hold())
}

// pipeline returns a pipeline on d. It closes both when the test ends.
func (r *rig) pipeline(d device.Device, lanes, batchPayloads int) *streams.Pipeline {
	r.Helper()
	r.Cleanup(func() { natstest.OK(r, d.Close()) })
	p := natstest.Must(streams.New(d, streams.Options{
		Operators: r.ops, Lanes: lanes, BatchBytes: 1 << 20, BatchPayloads: batchPayloads, ScratchLimit: 64 << 20,
	}))(r)
	r.Cleanup(func() { natstest.OK(r, p.Close()) })
	return p
}

// options returns the options of a mode with a pipeline, over nc.
func (r *rig) options(nc *nats.Conn, pipe *streams.Pipeline) Options {
	r.Helper()
	pipes, conns, log := []*streams.Pipeline{pipe}, natsconn.Connections{nc}, r.Log.Logger()
	written := natstest.Must(results.NewWriter(r.Ctx(), conns, results.Options{
		Topology: r.topology, Operators: r.ops, Format: operator.JSON, AckWait: r.topology.AckWait,
		Log: log, Observer: r.events, Progress: &inflight.Progress{},
	}))(r)
	pool := natstest.Must(inflight.NewPool(pipes, memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: r.ops}, MaxPayload: nc.MaxPayload()}))(r)
	judge := quarantine.NewJudge(pipes, &inflight.Progress{}, log)
	devices := NewDevices(DeviceOptions{Pipes: pipes, Pool: pool, Judge: judge, Linger: time.Millisecond, Spread: r.topology.Exclusive, Records: r.events})
	return Options{
		Topology: r.topology, Devices: devices, Conns: conns, JS: r.JetStream(nc),
		Size:    func(c jetstream.Consumer) pull.Size { return pull.NewSize(c.CachedInfo().Config) },
		Results: written, Limit: r.topology.MaxDeliver,
		Log: log, Observer: r.events, Stalls: stall.NewDetector(max(r.topology.Partitions, 1), log, r.events),
	}
}

// shared returns a Shared on a host device.
func (r *rig) shared(nc *nats.Conn) *Shared {
	r.Helper()
	o := r.options(nc, r.hostPipeline())
	o.Consumer = natstest.Must(o.JS.Consumer(r.Ctx(), r.topology.Stream, r.topology.Consumer))(r)
	return newShared(o)
}

func (r *rig) mode(pipe *streams.Pipeline) *Exclusive {
	r.Helper()
	return natstest.Must(newExclusive(r.options(r.open(r.URL), pipe)))(r)
}

// running is a mode that runs with the options o.
type running struct {
	o      *Options
	t      testing.TB
	intake context.Context
	stop   context.CancelCauseFunc
	giveUp context.CancelFunc // ends the drain
	done   chan struct{}
}

// start runs m until the test ends.
func (r *rig) start(m Mode, o *Options) *running {
	r.Helper()
	run := &running{o: o, t: r.TB, done: make(chan struct{})}
	run.intake, run.stop = context.WithCancelCause(context.Background())
	drainCtx, giveUp := context.WithCancel(context.Background())
	run.giveUp = giveUp
	go func() {
		defer close(run.done)
		end := o.Devices.Start(drainCtx, run.stop)
		m.Run(run.intake, drainCtx, run.stop)
		end()
		m.Abandon()
	}()
	r.Cleanup(run.drain)
	return run
}

func (r *rig) run(pipe *streams.Pipeline) *running {
	r.Helper()
	m := r.mode(pipe)
	return r.start(m, &m.o)
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
	mu                      sync.Mutex
	outcomes                [inflight.NumOutcomes]int
	redeliveries, restarts  int
	parts                   int // maximum number of groups in a batch
	backlog, unacknowledged uint64
	changed                 chan struct{}
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
	e.note(func() { e.outcomes[o]++ })
}

// outcome returns the number of deliveries with the given outcome.
func (e *events) outcome(o inflight.Outcome) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outcomes[o]
}

func (e *events) BatchDone(r *inflight.Record) { e.note(func() { e.parts = max(e.parts, r.Part+1) }) }

func (e *events) Frame(inflight.FrameStats) {}

func (e *events) OperatorFault(inflight.OperatorFault) {}

func (e *events) DeadLettered(inflight.DeadLetter) {}

func (e *events) PayloadLeftOut() {}

func (e *events) Pending(n uint64)        { e.note(func() { e.backlog = n }) }
func (e *events) Unacknowledged(n uint64) { e.note(func() { e.unacknowledged = n }) }
func (e *events) Redelivered()            { e.note(func() { e.redeliveries++ }) }
func (e *events) Restarted()              { e.note(func() { e.restarts++ }) }
func (e *events) Stalled(int)             {}
func (e *events) StateLogged(int)         {}
func (e *events) StateReplayed(int)       {}
func (e *events) StateTrimFailed()        {}

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
		stored := e.outcome(inflight.Published) + e.outcome(inflight.Duplicate)
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
