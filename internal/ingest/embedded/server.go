//go:build !noembedded

package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Included reports whether this build contains the server.
const Included = true

// Version is the server's version; empty in a build without a server.
const Version = server.VERSION

// Server is a running server.
type Server struct {
	s *server.Server
}

const (
	maxPort = 65535

	// startTimeout bounds the start of the server, which includes the recovery of stored streams.
	startTimeout = 30 * time.Second
)

// Start starts a server. It fails if the address is in use or the folder can't be used.
func Start(o Options) (*Server, error) {
	host, portText, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: address %q: %w", o.Addr, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > maxPort {
		return nil, fmt.Errorf("embedded NATS server: port %q is not a number from 0 to %d", portText, maxPort)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	} else if err := probe(o.Addr); err != nil {
		return nil, err
	}
	dir, err := prepare(o.Dir)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "millrace-embedded", Host: host, Port: port,
		JetStream: true, StoreDir: dir, MaxPayload: MaxPayload, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.Start() // returns once the server listens or has failed
	}()
	select {
	case <-started:
	case <-time.After(startTimeout):
	}
	if s.JetStreamEnabled() && s.Addr() != nil {
		return &Server{s: s}, nil
	}
	s.Shutdown()
	return nil, fmt.Errorf("embedded NATS server did not start on %s with its files in %s: is the folder intact, and used by "+
		"no other server? Set MILLRACE_DATA_DIR to another folder, or MILLRACE_NATS_URL to use your own server", o.Addr, dir)
}

// prepare creates the folder and checks that it is writable, because the server itself would report no
// error. It returns the absolute path.
func prepare(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o750)
	}
	var trial *os.File
	if err == nil {
		trial, err = os.CreateTemp(abs, "trial-*")
	}
	if err == nil {
		err = errors.Join(trial.Close(), os.Remove(trial.Name()))
	}
	if err != nil {
		return "", fmt.Errorf("embedded NATS server: folder %q: %w: set MILLRACE_DATA_DIR to a writable folder", dir, err)
	}
	return abs, nil
}

// probe checks that the address is free, because the server itself would only log a used address.
func probe(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w: is one running already? Set MILLRACE_NATS_URL=nats://%s to use it", err, addr)
	}
	return l.Close()
}

// URL returns the address for clients.
func (s *Server) URL() string { return s.s.ClientURL() }

// Close stops the server and waits until it has stopped. The stored data stays on disk.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}
