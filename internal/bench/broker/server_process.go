package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ingest/embedded"
)

// running is a server that Bench.Close stops.
type running interface {
	URL() string
	Close() error
}

// inProcess is a server in this process.
type inProcess struct{ *embedded.Server }

func startInProcess(o embedded.Options) (running, error) {
	s, err := embedded.Start(o)
	if err != nil {
		return nil, err
	}
	return inProcess{s}, nil
}

func (s inProcess) Close() error {
	s.Server.Close()
	return nil
}

// serverProcess is a server in its own process, so that this process's processor time and memory belong to the worker
// alone. It exits when its standard input ends, and so never outlives this process.
type serverProcess struct {
	cmd   *exec.Cmd
	in    io.Closer
	url   string
	wrote bytes.Buffer // standard error
}

const (
	// processTimeout is how long the server's process may take to start, or to end after its input has ended.
	processTimeout = time.Minute

	// maxOutput is the maximum number of bytes of its output that are read or shown.
	maxOutput = 2 << 10
)

// startProcess runs program with additional arguments, which ServerOptions reads. The program must call ServeUntilEOF.
func startProcess(ctx context.Context, program []string, args ...string) (_ running, err error) {
	p := &serverProcess{cmd: exec.Command(program[0], append(slices.Clone(program[1:]), args...)...)}
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
	stop := context.AfterFunc(starting, func() { _ = p.cmd.Process.Kill() }) // which ends its output
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

// untuned removes the variables that tune Go's runtime. They are meant for the worker, not for the server.
func untuned(environ []string) []string {
	return slices.DeleteFunc(environ, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"}, name)
	})
}

func (p *serverProcess) URL() string { return p.url }

// Close stops the process and waits for it. If the process fails, the error contains its standard error.
func (p *serverProcess) Close() error {
	closed := p.in.Close()
	defer time.AfterFunc(processTimeout, func() { _ = p.cmd.Process.Kill() }).Stop()
	err := p.cmd.Wait()
	if err == nil {
		return closed
	}
	text := p.wrote.String()
	return fmt.Errorf("the server's process: %w: %s", err, strings.TrimSpace(text[:min(len(text), maxOutput)]))
}

// localhost is where the servers listen for clients, each on a free port.
const localhost = "127.0.0.1:0"

// programArgs returns the arguments of a server's process: the folder of its files and, in a cluster, its index and the addresses of all
// servers.
func programArgs(o embedded.Options) []string {
	args := []string{o.Dir}
	if len(o.Cluster) > 0 {
		args = append(append(args, strconv.Itoa(o.Member)), o.Cluster...)
	}
	return args
}

// ServerOptions reads the arguments that the bench gives to a server's process.
func ServerOptions(args []string) (o embedded.Options, err error) {
	switch {
	case len(args) == 0 || len(args) == 2:
		return o, errors.New("the arguments are the folder for the server's files, and for a server of a cluster its index and the addresses of all servers")
	case len(args) > 1:
		o.Cluster = args[2:]
		if o.Member, err = strconv.Atoi(args[1]); err != nil {
			return o, fmt.Errorf("the index of the server is %q: give a number from 0", args[1])
		}
	}
	o.Addr, o.Dir = localhost, args[0]
	return o, nil
}

// ServeUntilEOF is the main function of the server's process: it runs a server, writes its URL to out as one line, and stops the server
// when in ends.
func ServeUntilEOF(o embedded.Options, in io.Reader, out io.Writer) error {
	server, err := embedded.Start(o)
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
