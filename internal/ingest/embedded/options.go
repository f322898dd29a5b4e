// Package embedded runs a NATS server with JetStream inside the process, for trying Millrace out with nothing
// installed and for tests. Clients reach it over TCP like any other.
//
// A build with the tag noembedded has no server in it: Included is false, and Start fails with ErrLeftOut.
//
// The command worker, the demo, the benchmarks and the tests use it. Start reading at Start.
package embedded

import "errors"

// MaxPayload is the largest message the server takes, headers included, in bytes: what a default batch takes.
const MaxPayload = 4 << 20

// Options says where the server listens and stores.
type Options struct {
	Addr string // host:port; port 0 takes a free one
	Dir  string // where JetStream keeps its files; created if missing
}

// ErrLeftOut is what Start says in a build without the server.
var ErrLeftOut = errors.New("this build has no NATS server in it (it was made with -tags noembedded)")
