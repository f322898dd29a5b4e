//go:build noembedded

package embedded

// Included says that this build has the server in it.
const Included = false

// Version is that of the server; empty in a build without one.
const Version = ""

// Server is never running in this build.
type Server struct{}

// Start fails with ErrLeftOut.
func Start(Options) (*Server, error) { return nil, ErrLeftOut }

// URL is empty: there is no server.
func (*Server) URL() string { return "" }

// Close does nothing.
func (*Server) Close() {}
