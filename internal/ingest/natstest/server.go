package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Plain starts a single server with the options o, without JetStream unless o enables it. The server ends with the
// test.
func Plain(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(&o)
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
