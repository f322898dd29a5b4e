package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// patience limits the wait for an event that must happen. No test sleeps for all of it.
const patience = natstest.Patience

// until is short for natstest.Until.
var until = natstest.Until

// rig has a server, a client, and the options of workers.
type rig struct {
	*natstest.Rig
	workerURL string // URL for workers, which is the server's unless there is a proxy
	opts      Options
	tally     *tally
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return rigOf(natstest.New(t))
}

// newRigAt returns a rig that uses the server at url.
func newRigAt(t testing.TB, url string) *rig {
	t.Helper()
	return rigOf(natstest.At(t, url))
}

// rigOf adds the default options of workers to server.
func rigOf(server *natstest.Rig) *rig {
	server.Helper()
	ops, err := operator.ParseList("crc32c,minhash?k=4&hashes=4")
	if err != nil {
		server.Fatal(err)
	}
	r := &rig{Rig: server, workerURL: server.URL, tally: newTally()}
	r.opts = optionsFor(ops, r.Log.Logger(), r.tally)
	return r
}

// optionsFor returns the default options of tests for these operators.
func optionsFor(ops []operator.Operator, log *slog.Logger, observer Observer) Options {
	o := Options{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
			ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
			MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000,
		},
		Messages: memory.Messages{Operators: ops, Format: operator.JSON}, Linger: time.Millisecond, DrainTimeout: 10 * time.Second,
		Logger: log, Observer: observer,
	}
	if c, ok := observer.(*tally); ok {
		o.settled = c.hasResult
	}
	return o
}

func (r *rig) provision() {
	r.Helper()
	if err := topology.Provision(r.Ctx(), r.JS, r.opts.Topology, r.opts.Logger); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) publish(n int, payload func(i int) []byte) {
	r.Helper()
	r.publishFrom(0, n, payload)
}

// publishFrom publishes the inputs with numbers from first to end-1.
func (r *rig) publishFrom(first, end int, payload func(i int) []byte) {
	r.Helper()
	r.Publish(first, end, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i), Header: nats.Header{"Trace": {strconv.Itoa(i)}}}
	})
}

// hostDevice opens a host device. It checks for leaks when the device is closed.
func hostDevice(t testing.TB) device.Device {
	t.Helper()
	return openHost(t, operator.HostKernels())
}

func openHost(t testing.TB, kernels []device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
		// Package testing keeps this function until the last test has ended, and a device uses megabytes.
		d = nil
	})
	return d
}

type running struct {
	rig    *rig
	t      testing.TB
	worker *Worker
	nc     *nats.Conn
	ctx    context.Context
	stop   context.CancelFunc
	done   chan error
}

// run starts a worker on a device, with its own connection.
func (r *rig) run(d device.Device, o streams.Options) *running {
	r.Helper()
	run := r.prepare(d, o)
	run.start()
	return run
}

// prepare returns a worker that is not started yet.
func (r *rig) prepare(d device.Device, o streams.Options) *running {
	r.Helper()
	p := r.pipeline(d, o)
	nc, err := natsconn.Open(natsconn.Server{URL: r.workerURL}, "millrace-test", r.opts.Logger, r.tally.Reconnected)
	if err != nil {
		r.Fatal(err)
	}
	w, err := NewWorker(r.Ctx(), nc, []*streams.Pipeline{p}, r.opts)
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &running{rig: r, t: r.TB, worker: w, nc: nc, ctx: ctx, stop: stop, done: make(chan error, 1)}
	r.Cleanup(nc.Close)
	return run
}

// pipeline returns a small pipeline that is closed before its device.
func (r *rig) pipeline(d device.Device, o streams.Options) *streams.Pipeline {
	r.Helper()
	o.Operators = r.opts.Operators
	if o.Lanes == 0 {
		o.Lanes = 2
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 256 << 10
	}
	if o.BatchPayloads == 0 {
		o.BatchPayloads = 1024
	}
	if o.ScratchLimit == 0 {
		o.ScratchLimit = 64 << 20
	}
	p, err := streams.New(d, o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.Errorf("closing the pipeline: %v", err)
		}
		p = nil // as in openHost
	})
	return p
}

// start runs the worker. The worker ends before its resources are closed.
func (run *running) start() {
	go func() { run.done <- run.worker.Run(run.ctx) }()
	run.t.Cleanup(func() {
		run.stop()
		_ = run.wait()   // the test has already checked the error, or failed
		run.worker = nil // as in openHost
	})
}

// startAndReceive starts the worker and returns once its client has n deliveries. Their results may not be published
// yet. Messages that the server sends while a worker unsubscribes are redelivered only after AckWait. Tests that wait
// for less must avoid that.
func (run *running) startAndReceive(n int) {
	run.t.Helper()
	run.start()
	run.rig.AwaitDelivered(run.rig.opts.Stream, n, run.nc)
}

// drain stops the worker and waits for it. A worker that ends without an error must have no inputs in flight.
func (run *running) drain() error {
	run.t.Helper()
	run.stop()
	err := run.wait()
	if m, ok := run.worker.mode.(*lease.Shared); ok && err == nil && m.InFlight() > 0 {
		run.t.Errorf("%d inputs are in flight after the end", m.InFlight())
	}
	return err
}

func (run *running) wait() error {
	run.t.Helper()
	select {
	case err := <-run.done:
		run.done <- err
		if bytes := run.worker.Memory().Submitted; bytes != 0 && err == nil {
			run.t.Errorf("%d bytes of payloads are counted after the end", bytes)
		}
		if m := run.worker.Memory(); m.Used != 0 {
			run.t.Errorf("%d bytes of the memory for payloads in hand are taken after the end", m.Used)
		}
		return err
	case <-time.After(patience):
		run.t.Fatal("the worker did not stop")
		return nil
	}
}

func (r *rig) consumerInfo() *jetstream.ConsumerInfo {
	r.Helper()
	return r.ConsumerInfo(r.opts.Stream, r.opts.Consumer)
}

// stored reads all messages of the result stream under a subject, by source sequence.
func (r *rig) stored(subject string) map[uint64][]jetstream.Msg {
	r.Helper()
	return r.storedIn(r.opts.ResultStream, subject)
}

func (r *rig) storedIn(name, subject string) map[uint64][]jetstream.Msg {
	r.Helper()
	c, err := r.JS.CreateConsumer(r.Ctx(), name, jetstream.ConsumerConfig{FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		r.Fatal(err)
	}
	left := int(c.CachedInfo().NumPending)
	got := map[uint64][]jetstream.Msg{}
	for left > 0 {
		batch, err := c.Fetch(min(left, 500), jetstream.FetchMaxWait(patience))
		if err != nil {
			r.Fatal(err)
		}
		for m := range batch.Messages() {
			left--
			seq, err := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
			if err != nil {
				r.Fatalf("message on %s has no source sequence: %v", m.Subject(), m.Headers())
			}
			got[seq] = append(got[seq], m)
		}
		if err := batch.Error(); err != nil {
			r.Fatal(err)
		}
	}
	return got
}

// wantAll checks that every input from 1 to n has exactly one result, which is correct.
func (r *rig) wantAll(n int, payload func(i int) []byte) {
	r.Helper()
	got := r.stored("results.>")
	for i := range n {
		seq := uint64(i + 1)
		if len(got[seq]) != 1 {
			r.Errorf("input %d has %d results, want 1", seq, len(got[seq]))
			continue
		}
		m := got[seq][0]
		if err := r.opts.Format.Check(r.opts.Operators, payload(i), m.Data()); err != nil {
			r.Errorf("result of input %d: %v", seq, err)
		}
		if want := fmt.Sprintf("results.web.%d", i%3); m.Subject() != want {
			r.Errorf("result of input %d is on %q, want %q", seq, m.Subject(), want)
		}
	}
	if len(got) != n {
		r.Errorf("results of %d inputs, want %d", len(got), n)
	}
}
