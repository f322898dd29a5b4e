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
	"strings"
	"time"

	"millrace/internal/ingest/embedded"
)

// running is a server that the rows use, and that Bench.Close stops.
type running interface {
	URL() string
	Close() error
}

// within is a server in this process.
type within struct{ *embedded.Server }

func (w within) Close() error {
	w.Server.Close()
	return nil
}

// apart is a server in a process of its own, so that processor time and memory of this one are the worker's alone. The
// process lives until its standard input ends, and thus no longer than this one, whatever becomes of it.
type apart struct {
	cmd   *exec.Cmd
	in    io.Closer
	url   string
	wrote bytes.Buffer // on standard error
}

const (
	// apartPatience is how long the other process may take to start, or to end once its input has.
	apartPatience = time.Minute

	// apartNoise is how much of its standard error is told, in bytes.
	apartNoise = 2 << 10
)

// startApart runs program with dir as one more argument, which must be ServeUntilEOF in another process.
func startApart(ctx context.Context, program []string, dir string) (a *apart, err error) {
	a = &apart{cmd: exec.Command(program[0], append(slices.Clone(program[1:]), dir)...)}
	a.cmd.Env, a.cmd.Stderr, a.cmd.WaitDelay = untuned(os.Environ()), &a.wrote, apartPatience
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("a server of its own: %w", err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("a server of its own: %w", err)
	}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("a server of its own: %w", err)
	}
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(out, apartNoise)).ReadString('\n')
		first <- strings.TrimSpace(line)
	}()
	timer := time.NewTimer(apartPatience)
	defer timer.Stop()
	select {
	case a.url = <-first:
	case <-timer.C:
		err = fmt.Errorf("it said nothing for %v", apartPatience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if a.url == "" {
		if err = errors.Join(err, a.Close()); err == nil {
			err = errors.New("it ended without a word")
		}
		return nil, fmt.Errorf("a server of its own did not start: %w", err)
	}
	return a, nil
}

// untuned is an environment in which Go's run time is as it comes: what a worker was tuned with is not meant for the server.
func untuned(environ []string) []string {
	return slices.DeleteFunc(environ, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"}, name)
	})
}

func (a *apart) URL() string { return a.url }

// Close ends the process and waits for it. The error has what it wrote if it did not end well.
func (a *apart) Close() error {
	closed := a.in.Close()
	timer := time.AfterFunc(apartPatience, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	err := a.cmd.Wait()
	if err == nil {
		return closed
	}
	said := a.wrote.String()
	return fmt.Errorf("the server's process: %w: %s", err, strings.TrimSpace(said[:min(len(said), apartNoise)]))
}

// ServeUntilEOF is the other side: it runs a server with its files in dir, writes its URL to out as one line, and stops it when
// in ends.
func ServeUntilEOF(dir string, in io.Reader, out io.Writer) error {
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: dir})
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
