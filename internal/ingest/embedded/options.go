// Package embedded runs a NATS server with JetStream inside the process, for tests and for trying Millrace without an
// installation. Clients reach it over TCP like any other server.
//
// A build with the tag noembedded contains no server: Included is false, and Start fails with ErrLeftOut.
//
// The command worker, the demo, the benchmarks and the tests use it. Start reading at Start.
package embedded

import "errors"

// MaxPayload is the size in bytes of the largest message that the server accepts, including headers. It equals the
// default capacity of a batch.
const MaxPayload = 4 << 20

// Options defines the server's address and directory.
type Options struct {
	Addr string // host:port; port 0 selects a free port
	Dir  string // directory of JetStream's files; created if missing
}

// ErrLeftOut is the error of Start in a build without the server.
var ErrLeftOut = errors.New("this build has no NATS server in it (it was made with -tags noembedded)")
