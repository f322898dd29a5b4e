package faults

import "millrace/internal/ingest/testkit"

// proxy makes one before the first server.
func (r *rig) proxy() *testkit.Proxy {
	r.t.Helper()
	return testkit.NewProxy(r.t, freePort(r.t), r.servers[0].addr)
}
