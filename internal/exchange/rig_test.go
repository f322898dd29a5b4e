package exchange

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
)

// rig is a server with an input stream IN (in.>), a result stream OUT (out.>) and a stream DEAD for dead letters (dead.>).
type rig struct {
	t    *testing.T
	addr string // of the server
	nc   *nats.Conn
	js   jetstream.JetStream
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &rig{t: t, addr: s.URL()[len("nats://"):]}
	r.nc = r.connect(s.URL())
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	r.create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	r.create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	r.create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	return r
}

// connect connects as natsconn does: what is published without a connection fails at once.
func (r *rig) connect(url string) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(natstest.Patience/1000),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// ctx returns a context that ends with the patience of the test.
func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) create(c jetstream.StreamConfig) {
	r.t.Helper()
	if _, err := r.js.CreateOrUpdateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

// stored returns the messages of a stream.
func (r *rig) stored(name string) (all []*jetstream.RawStreamMsg) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	for i := s.CachedInfo().State.FirstSeq; i <= s.CachedInfo().State.LastSeq; i++ {
		m, err := s.GetMsg(r.ctx(), i)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}
