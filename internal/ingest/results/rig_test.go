package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// rig is a server and a client.
type rig struct{ *natstest.Rig }

func newRig(t testing.TB) *rig { return &rig{natstest.New(t)} }

// writer returns a writer to the stream RESULTS.
func (r *rig) writer() *Writer {
	r.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		r.Fatal(err)
	}
	w, err := NewWriter(r.Ctx(), natsconn.Connections{r.NC}, Settings{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		},
		Operators: ops, Format: operator.JSON, AckWait: time.Minute, Log: r.Log.Logger(), Observer: nobody{}, Progress: func() {},
	})
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// nobody is an observer that ignores everything.
type nobody struct{}

func (nobody) Frame(inflight.FrameStats) {}

func (nobody) OperatorFault(inflight.OperatorFault) {}

func (nobody) PayloadLeftOut() {}

func (nobody) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}

// input returns a delivery of a payload.
func (r *rig) input(payload []byte) inflight.Delivery {
	r.Helper()
	m := pull.Stored(r.NC, "INGEST", "millrace", 1, &jetstream.RawStreamMsg{Subject: "ingest.web.0", Sequence: 1, Data: payload, Time: time.Now()})
	d, err := inflight.NewDelivery(m, time.Now())
	if err != nil {
		r.Fatal(err)
	}
	return d
}
