//go:build noembedded

package embedded

// Included reports whether this build contains the server.
const Included = false

// Version is the server's version; empty in a build without a server.
const Version = ""

// Server is a placeholder, because this build contains no server.
type Server struct{}

// Start fails with ErrLeftOut.
func Start(Options) (*Server, error) { return nil, ErrLeftOut }

// URL returns an empty string, because there is no server.
func (*Server) URL() string { return "" }

// Close does nothing.
func (*Server) Close() {}
