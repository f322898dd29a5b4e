package pull

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// patience limits the wait for an event that must happen.
const patience = natstest.Patience

// rig has a server with a stream IN and a consumer "in".
type rig struct{ *natstest.Rig }

// newRig creates the default consumer modified by change, on a server modified by options.
func newRig(t *testing.T, change func(*jetstream.ConsumerConfig), options ...func(*server.Options)) *rig {
	t.Helper()
	r := &rig{natstest.New(t, options...)}
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	c := jetstream.ConsumerConfig{Durable: "in", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 20}
	if change != nil {
		change(&c)
	}
	natstest.Must(r.JS.CreateConsumer(r.Ctx(), "IN", c))(t)
	return r
}

// publish stores n inputs. Each payload has size bytes and ends with the input's number, from first on.
func (r *rig) publish(first, n, size int) {
	r.Helper()
	r.Publish(first, first+n, func(i int) *nats.Msg { return &nats.Msg{Subject: "in.a", Data: fmt.Appendf(nil, "%0*d", size, i)} })
}

// asking returns a request for 1 MiB and the given number of messages.
func asking(messages int) Request {
	return Request{
		Stream: "IN", Consumer: "in", Messages: messages, Bytes: 1 << 20, Expires: time.Minute, Heartbeat: 20 * time.Second,
	}
}

// eachMode runs a test with a consumer that serves all clients, and with a consumer that serves one client at a time. request
// returns a request for the given number of messages.
func eachMode(t *testing.T, test func(t *testing.T, change func(*jetstream.ConsumerConfig), request func(messages int) Request)) {
	t.Run("shared", func(t *testing.T) { t.Parallel(); test(t, nil, asking) })
	t.Run("in a group", func(t *testing.T) {
		t.Parallel()
		test(t, turn, func(messages int) Request {
			q := inGroup()
			q.Messages = messages
			return q
		})
	})
}

func (r *rig) open(q Request) *Pull {
	r.Helper()
	p := natstest.Must(Open(r.NC, q))(r)
	r.Cleanup(p.Stop)
	return p
}

func (r *rig) next(p *Pull) *Message {
	r.Helper()
	return natstest.Must(p.Next(r.Ctx()))(r)
}

// nextFails checks the error of a call of Next.
func (r *rig) nextFails(p *Pull, want error) {
	r.Helper()
	if _, err := p.Next(r.Ctx()); !errors.Is(err, want) {
		r.Fatalf("Next: %v, want %v", err, want)
	}
}

func (r *rig) info() *jetstream.ConsumerInfo {
	r.Helper()
	return r.ConsumerInfo("IN", "in")
}

// until waits until cond returns true for the consumer's state.
func (r *rig) until(what string, cond func(*jetstream.ConsumerInfo) bool) {
	r.Helper()
	r.Until(what, func() bool { return cond(r.info()) })
}
