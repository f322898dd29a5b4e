package pull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
)

// patience bounds how long a test waits for an event that must happen. No test sleeps for all of it.
const patience = natstest.Patience

// rig has a server, a stream IN with a consumer "in", and a client.
type rig struct {
	t      *testing.T
	dir    string
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	ctx    context.Context
}

// newRig creates the default consumer, modified by change.
func newRig(t *testing.T, change func(*jetstream.ConsumerConfig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.start("127.0.0.1:0")
	t.Cleanup(func() { r.server.Close() })
	r.set(r.server.URL(), change)
	return r
}

// newRigAt is like newRig, with the server at url.
func newRigAt(t *testing.T, url string, change func(*jetstream.ConsumerConfig)) *rig {
	t.Helper()
	r := &rig{t: t}
	r.set(url, change)
	return r
}

// set connects to url and creates the stream and its consumer.
func (r *rig) set(url string, change func(*jetstream.ConsumerConfig)) {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r.ctx = ctx
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r.nc = nc
	if r.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}}); err != nil {
		t.Fatal(err)
	}
	c := jetstream.ConsumerConfig{Durable: "in", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 20}
	if change != nil {
		change(&c)
	}
	if _, err := r.js.CreateConsumer(ctx, "IN", c); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) start(addr string) {
	r.t.Helper()
	var err error
	if r.server, err = embedded.Start(embedded.Options{Addr: addr, Dir: r.dir}); err != nil {
		r.t.Fatal(err)
	}
}

// publish stores n inputs with their numbers, from first on, at the end of a payload of size bytes.
func (r *rig) publish(first, n, size int) {
	r.t.Helper()
	for i := first; i < first+n; i++ {
		if err := r.nc.Publish("in.a", []byte(fmt.Sprintf("%0*d", size, i))); err != nil {
			r.t.Fatal(err)
		}
	}
	r.stored(first + n)
}

// stored waits until the stream has n messages.
func (r *rig) stored(n int) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx, "IN")
	for err == nil && int(s.CachedInfo().State.Msgs) < n {
		_, err = s.Info(r.ctx)
	}
	if err != nil {
		r.t.Fatalf("%d inputs are not stored: %v", n, err)
	}
}

// asking returns a request for that many messages and for 1 MiB in total.
func asking(messages int) Request {
	return Request{
		Stream: "IN", Consumer: "in", Messages: messages, Bytes: 1 << 20, Expires: time.Minute, Heartbeat: 500 * time.Millisecond,
	}
}

// open starts a pull that ends with the test.
func (r *rig) open(q Request) *Pull {
	r.t.Helper()
	p, err := Open(r.nc, q)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Stop)
	return p
}

// next returns the next message.
func (r *rig) next(p *Pull) *Message {
	r.t.Helper()
	m, err := p.Next(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// info returns the consumer's info from the server.
func (r *rig) info() *jetstream.ConsumerInfo {
	r.t.Helper()
	c, err := r.js.Consumer(r.ctx, "IN", "in")
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo()
}

// until waits until the consumer is in that state.
func (r *rig) until(what string, cond func(*jetstream.ConsumerInfo) bool) {
	r.t.Helper()
	natstest.Until(r.t, what, func() bool { return cond(r.info()) })
}
