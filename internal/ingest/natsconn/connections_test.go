package natsconn

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
)

func TestEachConnectionHasItsShare(t *testing.T) {
	t.Parallel()
	a, b, c := &nats.Conn{}, &nats.Conn{}, &nats.Conn{}
	one, three := Connections{a}, Connections{a, b, c}
	for _, exclusive := range []bool{false, true} {
		if got := one.ForResults(exclusive); len(got) != 1 || got[0] != a || one.ForPartition(5, 2) != a {
			t.Error("one connection is not for everything")
		}
	}
	if got := three.ForResults(false); len(got) != 2 || got[0] != b || got[1] != c {
		t.Error("of three connections the last two are not for results, with shared delivery")
	}
	if got := three.ForResults(true); len(got) != 1 || got[0] != a {
		t.Error("of three connections the first is not for results, with exclusive delivery")
	}
	for n, want := range []*nats.Conn{c, b, c, b} {
		if three.ForPartition(5, n) != want {
			t.Errorf("lease %d on partition 5 is not over the next connection that is not for results", n)
		}
	}
}

// TestAwaitConnected shows that one working connection is enough. A closed connection or the end of the context also
// ends the wait.
func TestAwaitConnected(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Port: -1})
	p := natstest.NewProxy(t, "127.0.0.1:0", s.Addr().String())
	open := func(url string) *nats.Conn {
		nc, err := Open(Server{URL: url}, "test", natstest.NewLog(t).Logger(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	cut, up := open(p.URL()), open(s.ClientURL())
	lost := cut.StatusChanged(nats.RECONNECTING)
	p.Refuse(true)
	<-lost
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if !(Connections{cut, up}).AwaitConnected(ctx) {
		t.Error("it waits for one connection though another is up")
	}
	short, end := context.WithTimeout(ctx, 3*connectedEvery)
	defer end()
	if (Connections{cut}).AwaitConnected(short) {
		t.Error("it does not wait for the only connection")
	}
	back := make(chan bool, 1)
	go func() { back <- Connections{cut}.AwaitConnected(ctx) }()
	p.Refuse(false)
	if !<-back || !cut.IsConnected() {
		t.Error("the wait ended before the connection was back")
	}
	cut.Close()
	if !(Connections{cut}).AwaitConnected(ctx) {
		t.Error("it waits for a connection that is closed for good")
	}
}

func TestEndedConnectionsAreNoticed(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Port: -1})
	var all Connections
	for range 3 {
		nc, err := Open(Server{URL: s.ClientURL()}, "test", natstest.NewLog(t).Logger(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		all = append(all, nc)
	}
	if err := all.Ended(); err != nil {
		t.Errorf("all connections are up: %v", err)
	}
	all[2].Close()
	if err := all.Ended(); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("the last connection is closed: %v", err)
	}
}
