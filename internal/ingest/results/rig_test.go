package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/host"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// rig has a server and a client.
type rig struct{ *natstest.Rig }

func newRig(t testing.TB) *rig { return &rig{natstest.New(t)} }

func (r *rig) writer() *Writer {
	r.Helper()
	return r.writerWith(func(*Options) {})
}

// writerWith is like writer, with settings modified by change.
func (r *rig) writerWith(change func(*Options)) *Writer {
	r.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		r.Fatal(err)
	}
	o := Options{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		},
		Operators: ops, Format: operator.JSON, AckWait: time.Minute, Log: r.Log.Logger(), Observer: nobody{}, Progress: func() {},
	}
	change(&o)
	w, err := NewWriter(r.Ctx(), natsconn.Connections{r.NC}, o)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

func (r *rig) pipeline(w *Writer) *streams.Pipeline {
	r.Helper()
	d, err := host.Open(host.Options{Cores: 1, Kernels: operator.HostKernels()})
	if err != nil {
		r.Fatal(err)
	}
	pipe, err := streams.New(d, streams.Options{Operators: w.o.Operators, Lanes: 1, BatchPayloads: 64, BatchBytes: 1 << 20, ScratchLimit: 64 << 20})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _, _ = pipe.Close(), d.Close() })
	return pipe
}

type nobody struct{}

func (nobody) Frame(inflight.FrameStats) {}

func (nobody) OperatorFault(inflight.OperatorFault) {}

func (nobody) DeadLettered(inflight.DeadLetter) {}

func (nobody) PayloadLeftOut() {}

func (nobody) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}

// input returns a delivery of a payload from the stream INGEST.
func (r *rig) input(payload []byte) inflight.Delivery {
	r.Helper()
	m := pull.Stored(r.NC, "INGEST", "millrace", 1, &jetstream.RawStreamMsg{Subject: "ingest.web.0", Sequence: 1, Data: payload, Time: time.Now()})
	d, err := inflight.NewDelivery(m, time.Now())
	if err != nil {
		r.Fatal(err)
	}
	return d
}
