package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
)

// The input streams hold the same messages. Only exclusive delivery reads the stream with partitions. The subjects of a
// stream begin with its name.
const (
	plainStream       = "PLAIN"
	partitionedStream = "PARTITIONED"
	partitions        = 8

	resultStream   = "RESULTS"
	resultSubjects = "results.>"
)

// server is the NATS server of all peers.
type server struct {
	*embedded.Server
	dir string
	nc  *nats.Conn
	js  jetstream.JetStream
}

// start starts the server. The caller must close it unless there is an error.
func start() (s *server, err error) {
	s = &server{}
	if s.dir, err = os.MkdirTemp("", "peers-*"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.Server, err = embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: s.dir}); err != nil {
		return s, err
	}
	if s.nc, err = nats.Connect(s.URL()); err != nil {
		return s, err
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(64))
	return s, err
}

// close stops the server and removes its files.
func (s *server) close() error {
	if s.nc != nil {
		s.nc.Close()
	}
	if s.Server != nil {
		s.Close()
	}
	return os.RemoveAll(s.dir)
}

// fill stores the messages of l in both input streams. It returns the size of the messages in bytes.
func (s *server) fill(ctx context.Context, l load) (size int, err error) {
	streams := []jetstream.StreamConfig{{Name: plainStream}, {Name: partitionedStream}}
	streams[1].SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", partitions)}
	for _, c := range streams {
		c.Subjects = []string{c.Name + ".>"}
		if _, err := s.js.CreateStream(ctx, c); err != nil {
			return 0, err
		}
	}
	for i := 0; i < l.messages && ctx.Err() == nil; i++ {
		body := l.message(i)
		size += len(body)
		for _, c := range streams {
			if _, err := s.js.PublishAsync(fmt.Sprintf("%s.%d", c.Name, i%partitions), body, jetstream.WithStallWait(roundLimit)); err != nil {
				return 0, err
			}
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for _, c := range streams {
		stream, err := s.js.Stream(ctx, c.Name)
		if err != nil {
			return 0, err
		}
		if n := stream.CachedInfo().State.Msgs; n != uint64(l.messages) {
			return 0, fmt.Errorf("stream %s stored only %d of %d messages: free space in %s, or set TMPDIR", c.Name, n, l.messages, s.dir)
		}
	}
	return size, nil
}
