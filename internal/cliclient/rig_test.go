package cliclient

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// rig is a server with an input stream IN (in.>), a result stream OUT (out.>) and a stream DEAD for dead letters (dead.>).
type rig struct{ *natstest.Rig }

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{natstest.New(t)}
	r.NC = r.connect(r.URL)
	r.JS = r.JetStream(r.NC)
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	r.Create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	return r
}

// connect connects as natsconn does. A publish without a connection fails at once.
func (r *rig) connect(url string) *nats.Conn { return r.Connect(url, nats.ReconnectBufSize(-1)) }

func (r *rig) publish(messages ...*nats.Msg) {
	r.Helper()
	r.Publish(0, len(messages), func(i int) *nats.Msg { return messages[i] })
}
