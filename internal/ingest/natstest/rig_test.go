package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestARestartKeepsAddressAndFiles(t *testing.T) {
	t.Parallel()
	r := New(t)
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	r.Publish(0, 3, func(int) *nats.Msg { return &nats.Msg{Subject: "in.a", Data: []byte("x")} })
	r.Stop()
	r.Until("the client has noticed that the server is gone", func() bool { return !r.NC.IsConnected() })
	r.Restart()
	r.Until("the client is connected again", r.NC.IsConnected)
	if n := len(r.Stored("IN")); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	r := New(t)
	r.Reload(func(o *server.Options) { o.MaxPayload = 1 << 10 })
	if got := r.Connect(r.URL).MaxPayload(); got != 1<<10 {
		t.Errorf("messages may have %d bytes, want 1024", got)
	}
}

// TestClusterForms shows that the servers find each other and replicate a stream three times.
func TestClusterForms(t *testing.T) {
	t.Parallel()
	r := At(t, Cluster(t, 3))
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}, Replicas: 3})
	r.Publish(0, 3, func(int) *nats.Msg { return &nats.Msg{Subject: "in.a", Data: []byte("x")} })
	if n := len(r.Stored("IN")); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}
