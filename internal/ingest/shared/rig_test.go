package shared

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/host"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
	"millrace/internal/streams"
)

// patience bounds how long a test waits for an event that must happen.
const patience = natstest.Patience

// rig is a server, a client, and everything that a Mode needs.
type rig struct {
	t         *testing.T
	server    *embedded.Server
	url       string // URL for the code under test: the server's own unless there is a proxy
	nc        *nats.Conn
	js        jetstream.JetStream
	topology  topology.Topology
	operators []operator.Operator
	log       *natstest.Log
	counts    *counts
}

func newRig(t *testing.T) *rig {
	t.Helper()
	operators, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, operators: operators, log: natstest.NewLog(t), counts: &counts{},
		topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
			ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
			MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000,
		},
	}
	if r.server, err = embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.server.Close() })
	r.url = r.server.URL()
	r.nc = r.connect("test")
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// connect connects to r.url until the test ends.
func (r *rig) connect(name string) *nats.Conn {
	r.t.Helper()
	nc, err := natsconn.Open(natsconn.Server{URL: r.url}, name, r.log.Logger(), r.counts.Reconnected)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// provision creates the streams and the consumer.
func (r *rig) provision() {
	r.t.Helper()
	if err := topology.Provision(r.ctx(), r.js, r.topology, r.log.Logger()); err != nil {
		r.t.Fatal(err)
	}
}

// publish publishes the inputs with numbers from first to end-1.
func (r *rig) publish(first, end int, payload func(i int) []byte) {
	r.t.Helper()
	for i := first; i < end; i++ {
		if _, err := r.js.PublishMsgAsync(&nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i)}); err != nil {
			r.t.Fatal(err)
		}
	}
	select {
	case <-r.js.PublishAsyncComplete():
	case <-time.After(patience):
		r.t.Fatal("publishing did not complete")
	}
}

// consumer returns the consumer, for requests over nc.
func (r *rig) consumer(nc *nats.Conn) jetstream.Consumer {
	r.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := js.Consumer(r.ctx(), r.topology.Stream, r.topology.Consumer)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// input takes the next input as a worker would.
func (r *rig) input() inflight.Delivery {
	r.t.Helper()
	var d inflight.Delivery
	request := pull.Request{Stream: r.topology.Stream, Consumer: r.topology.Consumer, Bytes: 1 << 20}
	came, err := pull.Fetch(r.nc, request, 1, patience, func(m *pull.Message) {
		var err error
		if d, err = inflight.NewDelivery(m, time.Now()); err != nil {
			r.t.Error(err)
		}
	})
	if came != 1 || err != nil {
		r.t.Fatalf("%d inputs came: %v", came, err)
	}
	return d
}

// mode returns a Mode on a host device. The streams must exist.
func (r *rig) mode() *Mode {
	r.t.Helper()
	log, conns, pipes := r.log.Logger(), natsconn.Connections{r.nc}, []*streams.Pipeline{r.pipeline()}
	writer, err := results.NewWriter(r.ctx(), conns, results.Settings{
		Topology: r.topology, Operators: r.operators, Format: operator.JSON, AckWait: r.topology.AckWait, Log: log, Observer: r.counts, Progress: func() {},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	pool, err := inflight.NewPool(pipes, inflight.Settings{Costs: inflight.NewCosts(operator.JSON, r.operators)})
	if err != nil {
		r.t.Fatal(err)
	}
	consumer := r.consumer(r.nc)
	return New(Settings{
		Pipes: pipes, Conns: conns, JS: r.js, Consumer: consumer, Size: pull.NewSize(consumer.CachedInfo().Config), Pool: pool, Results: writer,
		Judge: quarantine.NewJudge(pipes, r.topology.MaxDeliver, func() {}, log), Stalls: stall.NewDetector(1, log, r.counts),
		Limit: r.topology.MaxDeliver, Linger: time.Millisecond, Log: log, Observer: r.counts,
	})
}

// pipeline returns a small pipeline on a host device.
func (r *rig) pipeline() *streams.Pipeline {
	r.t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.t.Errorf("closing the device: %v", err)
		}
	})
	p, err := streams.New(d, streams.Config{Operators: r.operators, Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1024, ScratchLimit: 64 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.t.Errorf("closing the pipeline: %v", err)
		}
	})
	return p
}

// until is natstest.Until.
var until = natstest.Until

// counts records the calls of the observers.
type counts struct {
	outcomes    [inflight.NumOutcomes]atomic.Int64
	redelivered atomic.Int64
	reconnected atomic.Int64
	pending     atomic.Uint64 // the last report, and likewise of unacked
	unacked     atomic.Uint64
}

func (c *counts) Frame(inflight.FrameStats) {}

func (c *counts) OperatorFault(inflight.OperatorFault) {}

func (c *counts) Settled(o inflight.Outcome, _, _ int, _, _ time.Duration) { c.outcomes[o].Add(1) }
func (c *counts) Redelivered()                                             { c.redelivered.Add(1) }
func (c *counts) Reconnected()                                             { c.reconnected.Add(1) }
func (c *counts) Pending(n uint64)                                         { c.pending.Store(n) }
func (c *counts) Unacknowledged(n uint64)                                  { c.unacked.Store(n) }
func (c *counts) Stalled(int)                                              {}

// document returns the payload of the i-th input.
func document(i int) []byte { return payloads.Text(uint64(i)+1, (i*997)%5000) }

// someBytes returns a function that makes payloads of that many bytes.
func someBytes(n int) func(int) []byte {
	return func(i int) []byte { return payloads.Text(uint64(i)+1, n) }
}

// paperMsg is a message that was never sent.
type paperMsg struct{ inflight.Message }

func (m *paperMsg) Data() []byte { return nil }
