package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The input streams hold the same messages. Only exclusive delivery reads the one with partitions. The subjects of a
// stream begin with its name.
const (
	plainStream       = "PLAIN"
	partitionedStream = "PARTITIONED"
	partitions        = 8

	resultStream   = "RESULTS"
	resultSubjects = "results.>"
)

// server is the NATS server, in its own process.
type server struct {
	cmd *exec.Cmd
	in  io.Closer // ends the server
	dir string
	url string
	nc  *nats.Conn
	js  jetstream.JetStream
}

// start starts the server that worker bench uses. The caller must close it unless there is an error.
func start(ctx context.Context, worker string) (s *server, err error) {
	s = &server{}
	if s.dir, err = os.MkdirTemp("", "peers-*"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.cmd = exec.CommandContext(ctx, worker, "bench-server", s.dir)
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return s, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := s.cmd.Start(); err != nil {
		return s, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return s, fmt.Errorf("the server didn't start: %w", err)
	}
	s.url = strings.TrimSpace(line)
	if s.nc, err = nats.Connect(s.url); err != nil {
		return s, err
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(64))
	return s, err
}

// close stops the server and removes its files.
func (s *server) close() (err error) {
	if s.nc != nil {
		s.nc.Close()
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.in.Close()
		err = s.cmd.Wait()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
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
			return 0, fmt.Errorf("stream %s took %d of %d messages: free space in %s, or set TMPDIR", c.Name, n, l.messages, s.dir)
		}
	}
	return size, nil
}
