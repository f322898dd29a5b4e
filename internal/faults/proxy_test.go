package faults

import "millrace/internal/ingest/natstest"

// proxy makes one before the first server.
func (r *rig) proxy() *natstest.Proxy {
	r.t.Helper()
	return natstest.NewProxy(r.t, freePort(r.t), r.servers[0].addr)
}
