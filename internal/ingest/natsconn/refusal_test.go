package natsconn

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"millrace/internal/ingest/natstest"
)

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
