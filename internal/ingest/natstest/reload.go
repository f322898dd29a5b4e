package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Reloading starts a server with JetStream that accepts messages of up to maxPayload bytes. reload changes this
// limit while the server runs, like a reload of its configuration.
func Reloading(t testing.TB, maxPayload int32) (s *server.Server, reload func(maxPayload int32)) {
	t.Helper()
	r := New(t, func(o *server.Options) { o.MaxPayload = maxPayload })
	return r.server, func(maxPayload int32) { r.Reload(func(o *server.Options) { o.MaxPayload = maxPayload }) }
}
