package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
)

// server is the NATS server of some rows, or a cluster of servers, with the streams of the current round.
type server struct {
	processes []running // of this bench; none if the server was running before
	where     string    // describes where it runs
	dir       string    // its files, removed by close; empty for none
	replicas  int       // of every stream
	address   natsconn.Server
	api       jsapi.API
	storage   jetstream.StorageType
	nc        *nats.Conn // for everything except the workers, which have their own connections
	js        jetstream.JetStream
	in, out   string // the streams' names in this round
	rounds    int    // of all rows so far

	connections connections   // of the workers
	batches     bool          // the result stream accepts batches, if the server can
	pollFirst   time.Duration // pause between two looks for a round's first delivery
}

// closeTimeout bounds how long removing the streams may take.
const closeTimeout = 30 * time.Second

// newServer connects to the server of o, or starts one. The caller closes it, unless there is an error.
func newServer(ctx context.Context, o Options) (*server, error) {
	return openServer(ctx, o, 1)
}

// openServer is newServer, for one server or a cluster of several.
func openServer(ctx context.Context, o Options, servers int) (s *server, err error) {
	s = &server{
		address: o.Server, api: o.API, storage: jetstream.FileStorage, batches: true, where: elsewhere, connections: connectionsOf(o.Connections),
		replicas: servers,
	}
	if o.Memory {
		s.storage = jetstream.MemoryStorage
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.Server.URL == "" {
		if err := s.start(ctx, o); err != nil {
			return s, err
		}
	}
	if s.nc, err = s.connect("millrace-bench"); err != nil {
		return s, err
	}
	if s.js, err = s.api.New(s.nc); err != nil {
		return s, err
	}
	if servers > 1 {
		return s, s.waitForCluster(ctx)
	}
	// An interrupted run may have left its streams.
	if err := s.remove(ctx); err != nil {
		return s, err
	}
	return s, s.anchor(ctx)
}

// start starts the servers: each in its own process if there is a program for that.
func (s *server) start(ctx context.Context, o Options) (err error) {
	if s.dir, err = os.MkdirTemp("", "millrace-bench-*"); err != nil {
		return fmt.Errorf("make a folder for the server's files: %w: set TMPDIR to a folder that is writable", err)
	}
	all := []embedded.Options{{Addr: localhost, Dir: s.dir}}
	if s.replicas > 1 {
		if all, err = members(s.replicas, s.dir); err != nil {
			return err
		}
	}
	var urls []string
	for _, options := range all {
		var p running
		if len(o.Program) > 0 {
			p, err = startProcess(ctx, o.Program, programArgs(options)...)
		} else {
			p, err = startInProcess(options)
		}
		if err != nil {
			return err
		}
		s.processes, urls = append(s.processes, p), append(urls, p.URL())
	}
	s.where = places[len(o.Program) > 0][s.replicas > 1]
	s.address, s.api = natsconn.Server{URL: strings.Join(urls, ",")}, jsapi.API{}
	return nil
}

// note adds notes on conditions that affect all figures.
func (s *server) note(session *bench.Session) {
	session.Note("%s", s.where)
	if s.connections != usualConnections {
		session.Note("Every worker has %d connections to the server, except in rows with a number in their name.", s.connections.shared)
	}
}

// quiet discards the logs of the measured workers. Their errors are returned.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// connect opens another connection, over TCP. The caller closes it.
func (s *server) connect(name string) (*nats.Conn, error) {
	return natsconn.Open(s.address, name, quiet, func() {})
}

// close undoes newServer, even if that failed halfway.
func (s *server) close() error {
	var errs []error
	if s.js != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, s.remove(ctx))
	}
	if s.nc != nil {
		s.nc.Close()
	}
	for _, p := range s.processes {
		errs = append(errs, p.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
