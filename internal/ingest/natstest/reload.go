package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Reloading starts a server with JetStream that accepts messages of up to maxPayload bytes. It returns a function
// that changes this limit while the server runs, as a reload of its configuration does.
func Reloading(t testing.TB, maxPayload int32) (s *server.Server, reload func(maxPayload int32)) {
	t.Helper()
	o := server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), MaxPayload: maxPayload, NoSigs: true, NoLog: true,
	}
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the server does not come up")
	}
	return s, func(maxPayload int32) {
		t.Helper()
		changed := o
		changed.MaxPayload = maxPayload
		if err := s.ReloadOptions(&changed); err != nil {
			t.Fatal(err)
		}
	}
}
