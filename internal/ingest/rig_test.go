package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// patience limits the wait for an event that must happen. No test sleeps for all of it.
const patience = natstest.Patience

// until and check are short for functions of natstest.
var (
	until = natstest.Until
	check = natstest.OK
)

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

// rigOf adds the default options of workers to server.
func rigOf(server *natstest.Rig) *rig {
	server.Helper()
	r := &rig{Rig: server, workerURL: server.URL, tally: newTally()}
	r.opts = optionsFor(nil, r.Log.Logger(), r.tally)
	r.operators("crc32c,minhash?k=4&hashes=4")
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

// provisioned returns the rig of a parallel test with shared delivery. It provisions the streams after the changes.
func provisioned(t *testing.T, changes ...func(o *Options)) *rig {
	t.Helper()
	t.Parallel()
	r := newRig(t)
	for _, change := range changes {
		change(&r.opts)
	}
	r.provision()
	return r
}

// exclusiveRig is like provisioned, with exclusive delivery of this number of partitions.
func exclusiveRig(t *testing.T, partitions int) *rig {
	t.Helper()
	return provisioned(t, func(o *Options) { o.Exclusive, o.Partitions = true, partitions })
}

// eachMode runs a test with shared delivery, and with exclusive delivery of this number of partitions. The test
// provisions the streams.
func eachMode(t *testing.T, partitions int, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if mode == "exclusive" {
				r.opts.Exclusive, r.opts.Partitions = true, partitions
			}
			test(t, r)
		})
	}
}

// eachModeOfFrames is like eachMode, with newline-delimited frames and two partitions.
func eachModeOfFrames(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 65536, MaxBytes: 64 << 20}
		test(t, r)
	})
}

// operators sets the rig's operators.
func (r *rig) operators(list string) {
	r.Helper()
	var err error
	if r.opts.Operators, err = operator.ParseList(list); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) provision() {
	r.Helper()
	check(r.TB, topology.Provision(r.Ctx(), r.JS, r.opts.Topology, r.opts.Logger))
}

func document(i int) []byte { return corpus.Text(uint64(i)+1, (i*997)%1000) }

// someBytes returns a function that makes payloads whose sizes cycle through sizes.
func someBytes(sizes ...int) func(i int) []byte {
	return func(i int) []byte {
		b := make([]byte, sizes[i%len(sizes)])
		for k := range b {
			b[k] = byte(i + k)
		}
		return b
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

func (r *rig) publishMsg(h nats.Header, data []byte) {
	r.Helper()
	r.Publish(0, 1, func(int) *nats.Msg { return &nats.Msg{Subject: "ingest.web.0", Header: h, Data: data} })
}

// remove deletes a stream. The returned function creates it again.
func (r *rig) remove(name string) (restore func()) {
	r.Helper()
	c := r.StreamConfig(name)
	r.Delete(name)
	return func() { r.Helper(); r.Create(c) }
}

// fill lets the result stream accept only n messages. The returned function removes that limit.
func (r *rig) fill(n int64) (empty func()) {
	r.Helper()
	before := r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, n })
	return func() { r.Helper(); r.Create(before) }
}

// purge removes the messages on a subject of the result stream.
func (r *rig) purge(subject string) {
	r.Helper()
	check(r.TB, r.Stream("RESULTS").Purge(r.Ctx(), jetstream.WithPurgeSubject(subject)))
}

// consumer returns the name of the worker's consumer. With exclusive delivery it is the consumer of partition 0.
func (r *rig) consumer() string { return r.consumerOf(0) }

// consumerOf returns the name of a partition's consumer, or of the only consumer with shared delivery.
func (r *rig) consumerOf(partition int) string {
	if r.opts.Exclusive {
		return topology.PartitionConsumer(r.opts.Consumer, partition)
	}
	return r.opts.Consumer
}

func (r *rig) consumerInfo() *jetstream.ConsumerInfo {
	r.Helper()
	return r.ConsumerInfo(r.opts.Stream, r.consumer())
}

// updateConsumer changes the configuration of the worker's consumer.
func (r *rig) updateConsumer(change func(c *jetstream.ConsumerConfig)) {
	r.Helper()
	c := r.consumerInfo().Config
	change(&c)
	_, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, c)
	check(r.TB, err)
}

// forgetConsumers recreates the worker's consumers, so every input is delivered again.
func (r *rig) forgetConsumers() {
	r.Helper()
	for _, name := range r.Consumers(r.opts.Stream) {
		if err := r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, name); err != nil {
			r.Fatalf("delete consumer %s: %v", name, err)
		}
	}
	r.provision()
}

// giveBack receives the first n inputs and gives them back, so a worker receives them as redeliveries.
func (r *rig) giveBack(n int) {
	r.Helper()
	batch, err := r.Consumer(r.opts.Stream, r.consumer()).Fetch(n, jetstream.FetchMaxWait(patience))
	check(r.TB, err)
	for m := range batch.Messages() {
		check(r.TB, m.Nak())
		n--
	}
	if n > 0 || batch.Error() != nil {
		r.Fatalf("%d inputs were not delivered: %v", n, batch.Error())
	}
}

// hear subscribes to subjects, for example of the workers' acknowledgements.
func (r *rig) hear(subjects ...string) <-chan *nats.Msg {
	r.Helper()
	heard := make(chan *nats.Msg, 1<<16)
	for _, subject := range subjects {
		_, err := r.NC.ChanSubscribe(subject, heard)
		check(r.TB, err)
	}
	check(r.TB, r.NC.Flush())
	return heard
}

// connections adds connections to later workers.
func (r *rig) connections(n int) {
	r.Helper()
	for range n {
		r.opts.More = append(r.opts.More, r.connection())
	}
}

func (r *rig) connection() *nats.Conn {
	r.Helper()
	nc, err := natsconn.Open(natsconn.Server{URL: r.workerURL}, "millrace-test", r.opts.Logger, r.tally.Reconnected)
	check(r.TB, err)
	r.Cleanup(nc.Close)
	return nc
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
	return r.prepareOn(o, d)
}

// prepareOn is like prepare, with several devices.
func (r *rig) prepareOn(o streams.Options, devices ...device.Device) *running {
	r.Helper()
	var pipes []*streams.Pipeline
	for _, d := range devices {
		pipes = append(pipes, r.pipeline(d, o))
	}
	nc := r.connection()
	w, err := NewWorker(r.Ctx(), nc, pipes, r.opts)
	check(r.TB, err)
	ctx, stop := context.WithCancel(context.Background())
	return &running{rig: r, t: r.TB, worker: w, nc: nc, ctx: ctx, stop: stop, done: make(chan error, 1)}
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
	check(r.TB, err)
	r.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.Errorf("closing the pipeline: %v", err)
		}
		p = nil // as in closeLast
	})
	return p
}

// process runs a worker until every input is settled, and ends it.
func (r *rig) process(d device.Device, o streams.Options) {
	r.Helper()
	run := r.run(d, o)
	if !r.awaitEnd(run) {
		r.Fatalf("the worker ended with %v before every input was settled", run.wait())
	}
	run.finish()
}

// start runs the worker. The worker ends before its resources are closed.
func (run *running) start() {
	go func() { run.done <- run.worker.Run(run.ctx) }()
	run.t.Cleanup(func() {
		run.stop()
		_ = run.wait()   // the test has already checked the error, or failed
		run.worker = nil // as in closeLast
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
	if err == nil {
		run.wantNothingHeld()
	}
	return err
}

// wantNothingHeld checks that an ended worker has neither inputs nor batches in flight.
func (run *running) wantNothingHeld() {
	run.t.Helper()
	if m, ok := run.worker.shards[0].mode.(*lease.Shared); ok && m.InFlight() > 0 {
		run.t.Errorf("%d inputs are in flight after the end", m.InFlight())
	}
	if s := run.worker.Status(); s.InHand != 0 {
		run.t.Errorf("after the end the worker has %d batches in hand", s.InHand)
	}
}

// finish drains the worker, which must end without an error.
func (run *running) finish() {
	run.t.Helper()
	if err := run.drain(); err != nil {
		run.t.Fatalf("Run: %v", err)
	}
}

// finishAfter drains the worker once n inputs are acknowledged because of their results.
func (run *running) finishAfter(n int) {
	run.t.Helper()
	run.rig.tally.awaitStored(run.t, n)
	run.finish()
}

// wantLost waits for the worker, which must end because its device is lost.
func (run *running) wantLost() {
	run.t.Helper()
	if err := run.wait(); !errors.Is(err, device.ErrLost) {
		run.t.Fatalf("Run = %v, want a lost device", err)
	}
}

// wantRunning fails the test if a worker ends instead of waiting for an event that doesn't happen.
func (run *running) wantRunning(waitsFor string) {
	run.t.Helper()
	select {
	case err := <-run.done:
		run.done <- err
		run.t.Errorf("the worker has ended (%v), and did not wait for %s", err, waitsFor)
	case <-time.After(500 * time.Millisecond): // no event may occur in that time
	}
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
