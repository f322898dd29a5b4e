package results

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/host"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// rig has a server with a stream RESULTS. The stream also has the dead letters unless a test changes that.
type rig struct{ *natstest.Rig }

// newRig returns a rig, and a writer on its stream. change may be nil.
func newRig(t testing.TB, change func(*jetstream.StreamConfig)) (*rig, *Writer) {
	t.Helper()
	r := &rig{natstest.New(t)}
	c := jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}}
	if change != nil {
		change(&c)
	}
	r.Create(c)
	return r, r.writer(func(*Options) {})
}

// provisioned returns a rig whose server has the given max_payload and the usual streams. observer may be nil.
func provisioned(t *testing.T, exclusive bool, maxPayload int32, observer Observer) (*rig, *Writer) {
	t.Helper()
	r := &rig{natstest.New(t, func(o *server.Options) { o.MaxPayload = maxPayload })}
	return r, r.writer(func(o *Options) {
		o.Consumer, o.Exclusive, o.Partitions, o.MaxDeliver, o.MaxAckPending = "millrace", exclusive, 1, 5, 100
		o.Topology.AckWait = time.Minute
		if observer != nil {
			o.Observer = observer
		}
		natstest.OK(t, topology.Provision(r.Ctx(), r.JS, o.Topology, o.Log))
	})
}

func options(t natstest.Failer, log *slog.Logger, operators string) Options {
	t.Helper()
	return Options{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, ResultStream: "RESULTS", ResultPrefix: "results",
			DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true,
		},
		Operators: natstest.Must(operator.ParseList(operators))(t), Format: operator.JSON, AckWait: time.Minute, Log: log,
		Observer: nobody{}, Progress: &inflight.Progress{},
	}
}

// writer returns another writer, with options modified by change.
func (r *rig) writer(change func(*Options)) *Writer {
	r.Helper()
	o := options(r, r.Log.Logger(), "crc32c")
	change(&o)
	return natstest.Must(NewWriter(r.Ctx(), natsconn.Connections{r.NC}, o))(r)
}

func (r *rig) pipeline(w *Writer) *streams.Pipeline {
	r.Helper()
	d := natstest.Must(host.Open(host.Options{Cores: 1, Kernels: operator.HostKernels()}))(r)
	pipe := natstest.Must(streams.New(d, streams.Options{
		Operators: w.o.Operators, Lanes: 1, BatchPayloads: 64, BatchBytes: 1 << 20, ScratchLimit: 64 << 20,
	}))(r)
	r.Cleanup(func() { _, _ = pipe.Close(), d.Close() })
	return pipe
}

type nobody struct{}

func (nobody) Frame(inflight.FrameStats)                                        {}
func (nobody) OperatorFault(inflight.OperatorFault)                             {}
func (nobody) DeadLettered(inflight.DeadLetter)                                 {}
func (nobody) StateLogged(int)                                                  {}
func (nobody) PayloadLeftOut()                                                  {}
func (nobody) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}

type noSink struct{}

func (noSink) Stored(context.Context, []*inflight.Delivery)         {}
func (noSink) DeadLettered(*inflight.Delivery, Reason)              {}
func (noSink) Incomplete(_ *inflight.Batch, _ int, err error) error { return err }

// input returns a delivery of a payload from the stream INGEST.
func (r *rig) input(sequence uint64, payload []byte) inflight.Delivery {
	r.Helper()
	m := &jetstream.RawStreamMsg{Subject: "ingest.web.0", Sequence: sequence, Data: payload, Time: time.Now()}
	return natstest.Must(inflight.NewDelivery(pull.Stored(r.NC, "INGEST", "millrace", 1, m), time.Now()))(r)
}

// payloads returns a batch of n inputs with results.
func (r *rig) payloads(n int) *inflight.Batch {
	r.Helper()
	b := &inflight.Batch{}
	for i := range n {
		b.Add(r.input(uint64(i+1), fmt.Appendf(nil, "payload %d", i+1)))
		b.Bodies.Add([]byte("{}"))
	}
	return b
}

// failedFrame returns a delivery of a frame whose records all failed. w stores its result.
func (r *rig) failedFrame(w *Writer, header nats.Header, lines []byte) inflight.Delivery {
	r.Helper()
	pool := natstest.Must(inflight.NewPool([]*streams.Pipeline{r.pipeline(w)}, memory.Worker{Messages: memory.Messages{
		Format: w.o.Format, Operators: w.o.Operators, Split: frame.Splitter{Framing: frame.NewlineDelimited},
	}}))(r)
	in := r.input(1, nil)
	in.Msg = modelMessage{body: lines, header: header}
	pool.Unpack(&in)
	in.Frame.Open()
	natstest.OK(r, in.Frame.Fault())
	for i := range in.Frame.Records() {
		in.Frame.Mark(i, record.OperatorError)
	}
	return in
}

// lines returns lines of the given sizes.
func lines(sizes ...int) (text []byte) {
	for _, n := range sizes {
		text = append(append(text, bytes.Repeat([]byte{'x'}, n)...), '\n')
	}
	return text
}

// lease returns the Commits of a new lease on partition 3.
func (r *rig) lease(w *Writer, owner string) *Commits {
	r.Helper()
	return natstest.Must(OpenCommits(r.Ctx(), w, Partition{Number: 3, Owner: owner}))(r)
}
