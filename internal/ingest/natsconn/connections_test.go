package natsconn

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pause"
)

func TestEachConnectionHasItsShare(t *testing.T) {
	t.Parallel()
	a, b, c := &nats.Conn{}, &nats.Conn{}, &nats.Conn{}
	one, three := Connections{a}, Connections{a, b, c}
	for _, exclusive := range []bool{false, true} {
		if got := one.ForResults(exclusive); len(got) != 1 || got[0] != a || one.ForPartition(5, 2) != a {
			t.Error("a single connection does not carry everything")
		}
	}
	if got := three.ForResults(false); len(got) != 2 || got[0] != b || got[1] != c {
		t.Error("with shared delivery and three connections, the last two do not carry the results")
	}
	if got := three.ForResults(true); len(got) != 1 || got[0] != a {
		t.Error("with exclusive delivery and three connections, the first does not carry the results")
	}
	for n, want := range []*nats.Conn{c, b, c, b} {
		if three.ForPartition(5, n) != want {
			t.Errorf("lease %d on partition 5 does not use the next connection for inputs", n)
		}
	}
}

// TestAwaitConnected shows that one working connection is enough. A closed connection or the end of the context also ends the wait.
func TestAwaitConnected(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Port: -1})
	p := natstest.NewProxy(t, "127.0.0.1:0", s.Addr().String())
	cut, up := open(t, Server{URL: p.URL()}).Conn, open(t, Server{URL: s.ClientURL()}).Conn
	lost := cut.StatusChanged(nats.RECONNECTING)
	p.Refuse(true)
	<-lost
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if !(Connections{cut, up}).AwaitConnected(ctx) {
		t.Error("AwaitConnected waits although a connection is up")
	}
	short, end := context.WithTimeout(ctx, 3*connectedEvery)
	defer end()
	if (Connections{cut}).AwaitConnected(short) {
		t.Error("AwaitConnected does not wait for the only connection")
	}
	back := make(chan bool, 1)
	go func() { back <- Connections{cut}.AwaitConnected(ctx) }()
	p.Refuse(false)
	if !<-back || !cut.IsConnected() {
		t.Error("the wait ended before the connection was back")
	}
	cut.Close()
	if !(Connections{cut}).AwaitConnected(ctx) {
		t.Error("AwaitConnected waits for a connection that is closed permanently")
	}
}

func TestEndedConnectionsAreNoticed(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Port: -1})
	var all Connections
	for range 3 {
		all = append(all, open(t, Server{URL: s.ClientURL()}).Conn)
	}
	if err := all.Ended(); err != nil {
		t.Errorf("all connections are up: %v", err)
	}
	all[2].Close()
	if err := all.Ended(); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("the last connection is closed: %v", err)
	}
}

func TestConnectSaysWhatToDo(t *testing.T) {
	t.Parallel()
	addr := natstest.Plain(t, server.Options{Users: []*server.User{{Username: "ann", Password: "pass-right"}}}).Addr().String()
	full := natstest.Plain(t, server.Options{MaxConn: 1}).ClientURL()
	open(t, Server{URL: full})
	empty := writeFile(t, filepath.Join(t.TempDir(), "empty"), nil)
	notURL := []string{"not a URL", "percent-encode", "MILLRACE_NATS_URL"}
	to := Server{URL: "nats://" + addr}
	refusals(t,
		refusal{name: "nobody there", to: Server{URL: "nats://127.0.0.1:1"},
			want: []string{"nats://127.0.0.1:1", "is a server running there", "MILLRACE_NATS_URL"}, temporary: true},
		refusal{name: "unknown name", to: Server{URL: "nats://nobody.invalid:4222"}, temporary: true},
		refusal{name: "a program that hangs up", to: Server{URL: "nats://" + hangsUp(t)}, temporary: true},
		refusal{name: "full", to: Server{URL: full}, temporary: true},
		refusal{name: "wrong password", to: Server{URL: "nats://ann:pass-wrong@" + addr},
			want: []string{to.URL, "Authorization", "does not accept the user, password or token in MILLRACE_NATS_URL"}},
		refusal{name: "bad address", to: Server{URL: "nats://ann:pass-wrong@host:port"}, want: notURL},
		refusal{name: "password not encoded", to: Server{URL: "nats://ann:pass-/@" + addr}, want: notURL},
		refusal{name: "no credentials", to: Server{URL: to.URL, Creds: empty + ".gone"},
			want: []string{"MILLRACE_NATS_CREDS", "no such file"}},
		refusal{name: "no seed", to: Server{URL: to.URL, NKey: empty}, want: []string{"MILLRACE_NATS_NKEY", empty}},
		refusal{name: "no files at all", to: Server{URL: to.URL, CA: empty + ".ca", NKey: empty + ".seed"},
			want: []string{"MILLRACE_NATS_TLS_CA", empty + ".ca", "MILLRACE_NATS_NKEY", empty + ".seed"}},
		refusal{name: "no authorities", to: Server{URL: to.URL, CA: empty}, want: []string{"MILLRACE_NATS_TLS_CA", empty}},
		refusal{name: "no certificate", to: Server{URL: to.URL, Cert: empty, Key: empty}, want: []string{"MILLRACE_NATS_TLS_CERT"}},
		refusal{name: "no TLS there", to: Server{URL: "tls://ann:pass-right@" + addr},
			want: []string{"tls://" + addr, "the server there has no TLS", "nats://"}},
	)
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://host:4222":                       "nats://host:4222",
		"nats://ann:secret@host:4222":            "nats://host:4222",
		"nats://token@host":                      "nats://host",
		"nats://a:s@one:1, tls://b:t@two:2":      "nats://one:1,tls://two:2",
		"ann:secret@host:4222":                   "host:4222",
		"nats://ann:se%zzcret@host":              "nats://host",
		"nats://ann:secret@host:port,nats://two": "nats://host:port,nats://two",
		"nats://ann:se/c@ret@host":               "nats://host",
		"":                                       "",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// listen listens on a port until the end of the test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l := natstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// hangsUp returns the address of a program that closes every connection, like a proxy without a server.
func hangsUp(t *testing.T) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// TestAStallEndsAConnection shows that a process that was stopped and continues neither sends nor receives bytes that
// its connection holds.
func TestAStallEndsAConnection(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	for _, way := range []string{"read", "write"} {
		watch := &pause.Watch{}
		now := time.Now()
		watch.Note(now)
		c := natstest.Must((&dialer{watch: watch}).Dial("tcp", listener.Addr().String()))(t)
		server := natstest.Must(listener.Accept())(t)
		natstest.Must(c.Write([]byte("before")))(t)
		natstest.Must(server.Write([]byte("late")))(t)
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

// TestNothingIsKeptForTheNextConnection shows that a message that is published without a connection isn't sent over the next one.
func TestNothingIsKeptForTheNextConnection(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{})
	nc := open(t, Server{URL: s.ClientURL()})
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

// TestAnOutageIsLoggedAtIntervals simulates the client's attempts to reconnect.
func TestAnOutageIsLoggedAtIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, to := natstest.NewLog(t), Server{Creds: "missing"}
		o := &outage{log: log.Logger(), dial: &dialer{last: &net.OpError{Op: "dial", Err: errors.New("no route")}}, advice: to.advice}
		o.nc.Store(&nats.Conn{})
		lines := 0
		for _, c := range []struct {
			lasts time.Duration
			want  int
		}{{2 * firstLog, 1}, {2 * everyLog, 2}, {firstLog / 2, 0}} {
			<-time.After(everyLog)
			for n, began := 1, time.Now(); time.Since(began) < c.lasts; n++ {
				<-time.After(o.beforeAttempt(n))
			}
			if lines += c.want; log.Count("no route") != lines || log.Count("is a server running there") != lines {
				t.Fatalf("%d lines after another outage of %v, want %d", log.Count("no route"), c.lasts, lines)
			}
		}
	})
}
