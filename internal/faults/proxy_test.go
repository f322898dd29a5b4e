package faults

import "millrace/internal/ingest/natstest"

// proxy creates a proxy in front of the first server.
func (r *rig) proxy() *natstest.Proxy {
	r.t.Helper()
	return natstest.NewProxy(r.t, "127.0.0.1:0", r.servers[0].addr)
}
