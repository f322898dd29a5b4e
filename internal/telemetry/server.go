package telemetry

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Limits per client. Handlers for profiles and traces that take longer extend the write deadline themselves.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server serves HTTP on one address.
type Server struct {
	http    *http.Server
	address net.Addr
	done    chan struct{}
	err     error // valid once done is closed
}

// Listen binds address (host:port; port 0 lets the system choose) and serves handler from then on. The argument
// variable is the configuration variable that holds the address; errors name it. Listen logs failures of requests.
// Error responses are JSON: {"error": TEXT, "status": NUMBER}.
func Listen(address, variable string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: stop that, or set %s to another address", address, variable)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w: set %s to an address of this machine", address, err, variable)
	}
	s := &Server{
		http: &http.Server{
			Handler: withFailures(handler, log), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
			WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
			ErrorLog: errorLog(log),
		},
		address: listener.Addr(),
		done:    make(chan struct{}),
	}
	go s.serve(listener)
	return s, nil
}

// errorWriter logs each line that net/http writes about a connection.
type errorWriter struct{ log *slog.Logger }

// errorLog returns the log for net/http. Its lines name clients, so they are an attribute of one message, whose number is limited.
func errorLog(log *slog.Logger) *stdlog.Logger { return stdlog.New(errorWriter{log}, "", 0) }

// Write implements io.Writer.
func (w errorWriter) Write(line []byte) (int, error) {
	w.log.Warn("HTTP server", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (s *Server) serve(listener net.Listener) {
	defer close(s.done)
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		s.err = fmt.Errorf("serving HTTP on %s: %w", s.address, err)
	}
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.address }

// Done returns a channel that is closed when the server has stopped. Err then returns the reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil while the server runs and after Close. Otherwise it returns why the server stopped.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close stops listening at once and lets requests finish until ctx is done. It then aborts the rest and returns ctx's
// error. A second Close returns nil.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("closing HTTP on %s: %w", s.address, err), s.http.Close())
	}
	<-s.done
	return err
}
