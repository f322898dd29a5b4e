package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
)

// server is the NATS server of all rows.
type server struct {
	process   *serverProcess // server that this bench started; nil for a server that was already running
	where     string         // description of the server's location
	dir       string         // folder of the server's files, removed by close; may be empty
	address   natsconn.Server
	api       jsapi.API
	storage   jetstream.StorageType
	nc        *nats.Conn // connection that the workers don't use
	js        jetstream.JetStream
	pollFirst time.Duration // pause between two checks for a round's first delivery
}

// These texts describe the location of the server and its effect on the figures.
const (
	ownProcess = "The server runs in its own process, over TCP on loopback. It shares the machine with every worker, but the column of cores does not include it."
	elsewhere  = "The server runs elsewhere, so the cores are the worker's alone."
)

// closeTimeout is the maximum time for removing the streams.
const closeTimeout = 30 * time.Second

// newServer connects to the server of o, or starts a server. The caller must close the returned server unless there is
// an error.
func newServer(ctx context.Context, o Options) (s *server, err error) {
	s = &server{address: o.Server, api: o.API, storage: jetstream.FileStorage, where: elsewhere, pollFirst: pollFirst}
	if o.Memory {
		s.storage = jetstream.MemoryStorage
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.Server.URL == "" {
		if err := s.start(ctx, o.Program); err != nil {
			return s, err
		}
	}
	if s.nc, err = s.connect("millrace-bench"); err != nil {
		return s, err
	}
	s.js, err = s.api.New(s.nc)
	return s, err
}

// start starts the server's process.
func (s *server) start(ctx context.Context, program []string) (err error) {
	if s.dir, err = os.MkdirTemp("", "millrace-bench-*"); err != nil {
		return fmt.Errorf("make a folder for the server's files: %w: set TMPDIR to a folder that is writable", err)
	}
	if s.process, err = startProcess(ctx, program, s.dir); err != nil {
		return err
	}
	s.where, s.address, s.api = ownProcess, natsconn.Server{URL: s.process.url}, jsapi.API{}
	return nil
}

// quiet discards the logs of the measured workers. Workers also return their errors.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// connect opens another TCP connection. The caller must close the connection.
func (s *server) connect(name string) (*nats.Conn, error) {
	return natsconn.Open(s.address, name, quiet, func() {})
}

// dial opens n connections for a worker. The caller must close them, even after an error.
func (s *server) dial(name string, n int) (all []*nats.Conn, err error) {
	for range n {
		nc, err := s.connect(name)
		if err != nil {
			return all, err
		}
		all = append(all, nc)
	}
	return all, nil
}

// flush waits until the server has received everything that was sent on the connections before the call.
func flush(ctx context.Context, conns []*nats.Conn) error {
	for _, nc := range conns {
		if err := nc.FlushWithContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

func closeAll(conns []*nats.Conn) {
	for _, nc := range conns {
		nc.Close()
	}
}

// close removes the streams and frees the resources of newServer, even if newServer has failed.
func (s *server) close() error {
	var errs []error
	if s.js != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, s.removeExcept(ctx, ""))
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.process != nil {
		errs = append(errs, s.process.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// serverProcess is a server in a separate process, so this process's processor time and memory are only the worker's.
// The server exits when its standard input ends, so it doesn't outlive this process.
type serverProcess struct {
	cmd   *exec.Cmd
	in    io.Closer
	url   string
	wrote bytes.Buffer // standard error of the process
}

const (
	// processTimeout is the maximum time for the start of the server's process, and for its exit after its input ends.
	processTimeout = time.Minute

	// maxOutput is the maximum number of bytes of the process's output that are read or shown.
	maxOutput = 2 << 10
)

// startProcess runs program with dir as an additional argument. The program must call ServeUntilEOF with dir.
func startProcess(ctx context.Context, program []string, dir string) (_ *serverProcess, err error) {
	p := &serverProcess{cmd: exec.Command(program[0], append(slices.Clone(program[1:]), dir)...)}
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = untuned(os.Environ()), &p.wrote, processTimeout
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the server's process: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server's process: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server's process: %w", err)
	}
	starting, cancel := context.WithTimeoutCause(ctx, processTimeout, fmt.Errorf("it wrote nothing for %v", processTimeout))
	defer cancel()
	stop := context.AfterFunc(starting, func() { _ = p.cmd.Process.Kill() }) // also ends the process's output
	line, _ := bufio.NewReader(io.LimitReader(out, maxOutput)).ReadString('\n')
	p.url = strings.TrimSpace(line)
	if !stop() {
		p.url, err = "", context.Cause(starting)
	}
	if p.url == "" {
		if err = errors.Join(err, p.Close()); err == nil {
			err = errors.New("it ended without output")
		}
		return nil, fmt.Errorf("the server's process did not start: %w", err)
	}
	return p, nil
}

// untuned returns environ without the variables that tune Go's runtime, which are meant for the worker, not the server.
func untuned(environ []string) []string {
	return slices.DeleteFunc(environ, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"}, name)
	})
}

// Close stops the process and waits for it. If the process fails, the error contains its standard error.
func (s *serverProcess) Close() error {
	closed := s.in.Close()
	defer time.AfterFunc(processTimeout, func() { _ = s.cmd.Process.Kill() }).Stop()
	err := s.cmd.Wait()
	if err == nil {
		return closed
	}
	text := s.wrote.String()
	return fmt.Errorf("the server's process: %w: %s", err, strings.TrimSpace(text[:min(len(text), maxOutput)]))
}

// ServeUntilEOF is the main function of the server's process. It runs a server with its files in dir, and writes the server's URL to out as
// one line. It stops the server when in reaches EOF.
func ServeUntilEOF(dir string, in io.Reader, out io.Writer) error {
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: dir}) // the system chooses the port
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := fmt.Fprintln(out, server.URL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
