package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natsconn"
)

// site is the server and what all rows do with it.
type site struct {
	server  running // nil for one that was there before
	where   string  // what to say of where it runs
	scratch string  // the folder to remove; empty for none
	address natsconn.Server
	storage jetstream.StorageType
	nc      *nats.Conn // for everything but the workers, which have connections of their own
	js      jetstream.JetStream
	in, out string // the streams' names in this round
	rounds  int    // of all rows so far
	links   links  // of the workers
	batches bool   // the result stream takes batches, where the server can
}

// closing bounds how long removing the streams may take.
const closing = 30 * time.Second

func newSite(ctx context.Context, o Options) (s *site, err error) {
	s = &site{address: o.Server, storage: jetstream.FileStorage, batches: true, where: elsewhere, links: linksOf(o.Connections)}
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
	if s.js, err = jetstream.New(s.nc); err != nil {
		return s, err
	}
	// What a run left behind that was cut off is in the way, and is this program's.
	if err := s.remove(ctx); err != nil {
		return s, err
	}
	return s, s.anchor(ctx)
}

// start starts a server: in a process of its own where there is a program for that.
func (s *site) start(ctx context.Context, o Options) (err error) {
	dir := o.Dir
	if dir == "" {
		if s.scratch, err = os.MkdirTemp("", "millrace-bench-*"); err != nil {
			return fmt.Errorf("a folder for the server's files: %w: set TMPDIR to one that can be written to", err)
		}
		dir = s.scratch
	}
	if len(o.Program) > 0 {
		a, err := startApart(ctx, o.Program, dir)
		if err != nil {
			return err
		}
		s.server, s.where = a, ownProcess
	} else {
		e, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: dir})
		if err != nil {
			return err
		}
		s.server, s.where = within{e}, oneProcess
	}
	s.address = natsconn.Server{URL: s.server.URL()}
	return nil
}

// quiet is a log for what runs under measurement: what goes wrong there is in the error.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// connect opens one more connection, over TCP. The caller closes it.
func (s *site) connect(name string) (*nats.Conn, error) {
	return natsconn.Open(s.address, name, quiet, func() {})
}

// close takes everything down again, however far newSite came.
func (s *site) close() error {
	var errs []error
	if s.js != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		errs = append(errs, s.remove(ctx))
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	if s.scratch != "" {
		errs = append(errs, os.RemoveAll(s.scratch))
	}
	return errors.Join(errs...)
}
