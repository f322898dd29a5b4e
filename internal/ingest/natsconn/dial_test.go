package natsconn

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pause"
)

// TestAStallEndsAConnection shows that a process that was stopped and continues neither sends nor receives bytes that
// its connection holds.
func TestAStallEndsAConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for _, way := range []string{"read", "write"} {
		watch := &pause.Watch{}
		now := time.Now()
		watch.Note(now)
		c, err := dialer{watch}.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("before")); err != nil {
			t.Fatalf("%s: before the stop: %v", way, err)
		}
		if _, err := server.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		watch.Note(now.Add(pause.Bound + time.Minute))
		n, err := c.Read(make([]byte, 4))
		if way == "write" {
			n, err = c.Write([]byte("late"))
		}
		if n != 0 || !errors.Is(err, errStalled) {
			t.Errorf("%s after the stop: %d bytes, %v", way, n, err)
		}
		if got, err := io.ReadAll(server); string(got) != "before" && err == nil {
			t.Errorf("%s: the other end got %q", way, got)
		}
		_ = server.Close()
	}
}

// TestNothingIsKeptForTheNextConnection shows that a message that is published without a connection isn't sent over
// the next one.
func TestNothingIsKeptForTheNextConnection(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{})
	log := natstest.NewLog(t)
	nc, err := Open(Server{URL: s.ClientURL()}, "test", log.Logger(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	down := nc.StatusChanged(nats.RECONNECTING)
	s.Shutdown()
	select {
	case <-down:
	case <-time.After(natstest.Patience):
		t.Fatal("the connection is not lost")
	}
	if err := nc.Publish("results.a", []byte("late")); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("publishing without a connection: %v", err)
	}
}
