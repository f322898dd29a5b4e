package results

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// rig is a server and a client.
type rig struct {
	t  testing.TB
	nc *nats.Conn
	js jetstream.JetStream
}

func newRig(t testing.TB) *rig {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{t: t}
	if r.nc, err = nats.Connect(s.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) createStream(c jetstream.StreamConfig) {
	r.t.Helper()
	if _, err := r.js.CreateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

// writer returns a writer to the stream RESULTS.
func (r *rig) writer() *Writer {
	r.t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := NewWriter(r.ctx(), natsconn.Connections{r.nc}, Settings{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		},
		Operators: ops, Format: operator.JSON, AckWait: time.Minute, Log: natstest.NewLog(r.t).Logger(), Observer: nobody{}, Progress: func() {},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// nobody is an observer that ignores everything.
type nobody struct{}

func (nobody) Frame(inflight.FrameStats) {}

func (nobody) OperatorFault(inflight.OperatorFault) {}

func (nobody) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}

// input returns a delivery of a payload.
func (r *rig) input(payload []byte) inflight.Delivery {
	r.t.Helper()
	m := pull.Stored(r.nc, "INGEST", "millrace", 1, &jetstream.RawStreamMsg{Subject: "ingest.web.0", Sequence: 1, Data: payload, Time: time.Now()})
	d, err := inflight.NewDelivery(m, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}
