package natsconn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pause"
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

func connectFails(t *testing.T, c Server) string {
	t.Helper()
	nc, err := Open(c, "test", slog.New(slog.DiscardHandler), func() {})
	if err == nil {
		nc.Close()
		t.Fatal("connected")
	}
	return err.Error()
}

func TestConnectSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Users: []*server.User{{Username: "ann", Password: "pass-right"}}})
	addr := s.Addr().String()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		to   Server
		want []string
	}{
		{"nobody there", Server{URL: "nats://127.0.0.1:1"},
			[]string{"nats://127.0.0.1:1", "is a server running there", "MILLRACE_NATS_URL"}},
		{"wrong password", Server{URL: "nats://ann:pass-wrong@" + addr},
			[]string{"nats://" + addr, "Authorization", "does not accept the user, password or token in MILLRACE_NATS_URL"}},
		{"bad address", Server{URL: "nats://ann:pass-wrong@host:port"}, []string{"not a URL", "percent-encode", "MILLRACE_NATS_URL"}},
		{"password not encoded", Server{URL: "nats://ann:pass-/@" + addr}, []string{"not a URL", "percent-encode", "MILLRACE_NATS_URL"}},
		{"no credentials", Server{URL: "nats://" + addr, Creds: empty + ".gone"}, []string{"MILLRACE_NATS_CREDS", "no such file"}},
		{"no seed", Server{URL: "nats://" + addr, NKey: empty}, []string{"MILLRACE_NATS_NKEY", empty}},
		{"no files at all", Server{URL: "nats://" + addr, CA: empty + ".ca", NKey: empty + ".seed"},
			[]string{"MILLRACE_NATS_TLS_CA", empty + ".ca", "MILLRACE_NATS_NKEY", empty + ".seed"}},
		{"no authorities", Server{URL: "nats://" + addr, CA: empty}, []string{"MILLRACE_NATS_TLS_CA", empty}},
		{"no certificate", Server{URL: "nats://" + addr, Cert: empty, Key: empty}, []string{"MILLRACE_NATS_TLS_CERT"}},
		{"no TLS there", Server{URL: "tls://ann:pass-right@" + addr}, []string{"tls://" + addr, "the server there has no TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := connectFails(t, c.to)
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
			if strings.Contains(got, "pass-") {
				t.Errorf("%q tells the password", got)
			}
		})
	}
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

// TestPermanent checks which errors are permanent. A worker waits and retries after all other errors.
func TestPermanent(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	users := natstest.Plain(t, server.Options{Users: []*server.User{{Username: "ann", Password: "right"}}}).Addr().String()
	full := natstest.Plain(t, server.Options{MaxConn: 1})
	held, err := Open(Server{URL: full.ClientURL()}, "test", slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Close)
	plain := ours.secureServer(current, "127.0.0.1", false, server.Options{}).Addr().String()
	expired := ours.secureServer(past, "127.0.0.1", false, server.Options{}).Addr().String()
	elsewhere := ours.secureServer(current, "nats.example.com", false, server.Options{}).Addr().String()
	verifying := ours.secureServer(current, "127.0.0.1", true, server.Options{}).Addr().String()
	strange, strangeKey := others.client("strange", current)
	old, oldKey := ours.client("old", past)
	seed := writeFile(t, filepath.Join(t.TempDir(), "seed"), seedOf(t, createKey(t, nkeys.CreateUser)))
	for name, c := range map[string]struct {
		to   Server
		want bool
	}{
		"nobody there":                 {Server{URL: "nats://127.0.0.1:1"}, false},
		"unknown name":                 {Server{URL: "nats://nobody.invalid:4222"}, false},
		"a program that hangs up":      {Server{URL: "nats://" + hangsUp(t)}, false},
		"full":                         {Server{URL: full.ClientURL()}, false},
		"server's certificate expired": {Server{URL: "tls://" + expired, CA: ours.file}, false},
		"wrong password":               {Server{URL: "nats://ann:wrong@" + users}, true},
		"bad address":                  {Server{URL: "nats://ann:wrong@host:port"}, true},
		"no file":                      {Server{URL: "nats://" + users, Creds: filepath.Join(t.TempDir(), "gone")}, true},
		"no TLS there":                 {Server{URL: "tls://" + users}, true},
		"no NKeys there":               {Server{URL: "nats://" + natstest.Plain(t, server.Options{}).Addr().String(), NKey: seed}, true},
		"another authority":            {Server{URL: "tls://" + plain, CA: others.file}, true},
		"no authority":                 {Server{URL: "tls://" + plain}, true},
		"another host":                 {Server{URL: "tls://" + elsewhere, CA: ours.file}, true},
		"certificate of another":       {Server{URL: "tls://" + verifying, CA: ours.file, Cert: strange, Key: strangeKey}, true},
		"certificate expired":          {Server{URL: "tls://" + verifying, CA: ours.file, Cert: old, Key: oldKey}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := Open(c.to, "test", slog.New(slog.DiscardHandler), func() {})
			if err == nil {
				nc.Close()
				t.Fatal("connected")
			}
			if got := Permanent(err); got != c.want {
				t.Errorf("permanent: %v, want %v: %v", got, c.want, err)
			}
		})
	}
}

// hangsUp returns the address of a program that closes every connection, like a proxy without a server.
func hangsUp(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // ends the loop
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
