package lease

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/corpus"
	"millrace/internal/device/host"
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

// patience limits the wait for an event that must happen.
const patience = natstest.Patience

// sharedRig has a server and the settings of a Shared.
type sharedRig struct {
	*natstest.Rig
	url       string // URL for the code under test, which is the server's unless there is a proxy
	topology  topology.Topology
	operators []operator.Operator
	counts    *tally
}

func newSharedRig(t *testing.T) *sharedRig {
	t.Helper()
	operators, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	r := &sharedRig{
		Rig: natstest.New(t), operators: operators, counts: &tally{},
		topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
			ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
			MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000,
		},
	}
	r.url = r.URL
	r.NC = r.open("test")
	r.JS = r.JetStream(r.NC)
	return r
}

// open connects to r.url like a worker, until the test ends.
func (r *sharedRig) open(name string) *nats.Conn {
	r.Helper()
	nc, err := natsconn.Open(natsconn.Server{URL: r.url}, name, r.Log.Logger(), r.counts.Reconnected)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	return nc
}

func (r *sharedRig) provision() {
	r.Helper()
	if err := topology.Provision(r.Ctx(), r.JS, r.topology, r.Log.Logger()); err != nil {
		r.Fatal(err)
	}
}

func (r *sharedRig) publish(first, end int, payload func(i int) []byte) {
	r.Helper()
	r.Publish(first, end, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i)} })
}

func (r *sharedRig) consumer(nc *nats.Conn) jetstream.Consumer {
	r.Helper()
	c, err := r.JetStream(nc).Consumer(r.Ctx(), r.topology.Stream, r.topology.Consumer)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// input receives the next input like a worker.
func (r *sharedRig) input() inflight.Delivery {
	r.Helper()
	var d inflight.Delivery
	request := pull.Request{Stream: r.topology.Stream, Consumer: r.topology.Consumer, Bytes: 1 << 20}
	came, err := pull.Fetch(r.NC, request, 1, patience, func(m *pull.Message) {
		var err error
		if d, err = inflight.NewDelivery(m, time.Now()); err != nil {
			r.Error(err)
		}
	})
	if came != 1 || err != nil {
		r.Fatalf("%d inputs came: %v", came, err)
	}
	return d
}

// mode returns a Shared on a host device. The streams must exist.
func (r *sharedRig) mode() *Shared {
	r.Helper()
	log, conns, pipes := r.Log.Logger(), natsconn.Connections{r.NC}, []*streams.Pipeline{r.pipeline()}
	writer, err := results.NewWriter(r.Ctx(), conns, results.Options{
		Topology: r.topology, Operators: r.operators, Format: operator.JSON, AckWait: r.topology.AckWait, Log: log, Observer: r.counts, Progress: func() {},
	})
	if err != nil {
		r.Fatal(err)
	}
	pool, err := inflight.NewPool(pipes, memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: r.operators}})
	if err != nil {
		r.Fatal(err)
	}
	consumer := r.consumer(r.NC)
	return newShared(Options{
		Topology: r.topology, Pipes: pipes, Conns: conns, JS: r.JS, Consumer: consumer, Size: func(c jetstream.Consumer) pull.Size { return pull.NewSize(c.CachedInfo().Config) }, Pool: pool, Results: writer,
		Judge: quarantine.NewJudge(pipes, r.topology.MaxDeliver, func() {}, log), Stalls: stall.NewDetector(1, log, r.counts),
		Limit: r.topology.MaxDeliver, Linger: time.Millisecond, Log: log, Observer: r.counts,
	})
}

func (r *sharedRig) pipeline() *streams.Pipeline {
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
	p, err := streams.New(d, streams.Options{Operators: r.operators, Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1024, ScratchLimit: 64 << 20})
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

type tally struct {
	outcomes    [inflight.NumOutcomes]atomic.Int64
	redelivered atomic.Int64
	reconnected atomic.Int64
	// pending and unacked are the last reported values.
	pending atomic.Uint64
	unacked atomic.Uint64
}

func (c *tally) Frame(inflight.FrameStats) {}

func (c *tally) OperatorFault(inflight.OperatorFault) {}

func (c *tally) DeadLettered(inflight.DeadLetter) {}

func (c *tally) PayloadLeftOut() {}

func (c *tally) Settled(o inflight.Outcome, _, _ int, _, _ time.Duration) { c.outcomes[o].Add(1) }
func (c *tally) Redelivered()                                             { c.redelivered.Add(1) }
func (c *tally) Reconnected()                                             { c.reconnected.Add(1) }
func (c *tally) Pending(n uint64)                                         { c.pending.Store(n) }
func (c *tally) Unacknowledged(n uint64)                                  { c.unacked.Store(n) }
func (c *tally) Stalled(int)                                              {}
func (c *tally) Restarted()                                               {}

// someBytes returns a function that makes payloads of n bytes.
func someBytes(n int) func(int) []byte {
	return func(i int) []byte { return corpus.Text(uint64(i)+1, n) }
}

type paperMsg struct{ inflight.Message }

func (m *paperMsg) Data() []byte { return nil }
