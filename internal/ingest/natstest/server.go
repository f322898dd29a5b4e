package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Plain starts a single server with the options o. If o has no port, the operating system selects one. JetStream runs only if o
// enables it. The server stops at the end of the test.
func Plain(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(onLoopback(o))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the server did not come up")
	}
	return s
}

// onLoopback returns o with the common options of all servers.
func onLoopback(o server.Options) *server.Options {
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	return &o
}
