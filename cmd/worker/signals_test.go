package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/natstest"
)

// TestExitCodes pins the numbers, because supervisors and scripts depend on them.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("device host: %w", device.ErrLost)
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("anything"), 1}, {errReported, 1}, {usageError{errors.New("no such flag")}, 2},
		{lost, 70}, {errors.Join(errors.New("closing"), lost), 70}, {errors.Join(lost, context.Canceled), 70},
		{fmt.Errorf("%w, and then: %w", errors.New("a flush failed"), lost), 70},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exit status %d of %v, want %d", got, c.err, c.want)
		}
	}
}

// hangUps lets child processes of a test receive SIGHUP, even under nohup. A child inherits an ignored signal, but not
// a handler.
func hangUps(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
}

// TestClosedTerminalDrains ends a worker as a closing terminal does: with SIGHUP, and without a reader of its output.
// As after SIGTERM, the worker acknowledges every input and gives none back.
func TestClosedTerminalDrains(t *testing.T) {
	t.Parallel()
	hangUps(t)
	s, as := documentedServer(t)
	admin, js := as("admin")
	provision(t, js, false)
	back, err := admin.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.INGEST.>")
	if err != nil {
		t.Fatal(err)
	}
	const n = 5000
	for i := range n {
		if i%1000 == 0 { // the client limits pending publishes on a slow server
			<-js.PublishAsyncComplete()
		}
		if _, err := js.PublishAsync("ingest.web", make([]byte, i%2000)); err != nil {
			t.Fatal(err)
		}
	}
	w := startPiped(t, nil, "run", "MILLRACE_NATS_URL=nats://worker:worker-password@"+s.Addr().String(), "MILLRACE_BATCH_PAYLOADS=50")
	w.await(t, `"msg":"working"`)
	natstest.Until(t, "some results are stored", func() bool { return streamMessages(t, js, "RESULTS") > 0 })
	if err := w.out.Close(); err != nil {
		t.Fatal(err)
	}
	if status := w.signal(t, syscall.SIGHUP); status.ExitStatus() != 0 {
		t.Errorf("the worker ended with status %v (signal %v), want 0", status.ExitStatus(), status.Signal())
	}
	results := streamMessages(t, js, "RESULTS")
	natstest.Until(t, "exactly the inputs of all results are settled", func() bool { // the server processes acknowledgements asynchronously
		c, err := js.Consumer(t.Context(), "INGEST", "millrace")
		if err != nil {
			t.Fatal(err)
		}
		info := c.CachedInfo()
		return info.Delivered.Consumer-uint64(info.NumAckPending) == results
	})
	if results == n {
		t.Errorf("all %d results are stored, want fewer", n)
	}
	if given, _, err := back.Pending(); err != nil || given > 0 {
		t.Errorf("%d inputs were given back (%v)", given, err)
	}
}

// TestNohupKeepsTheWorkerRunning checks that a worker that starts with SIGHUP ignored outlives its terminal.
func TestNohupKeepsTheWorkerRunning(t *testing.T) {
	t.Parallel()
	s, as := documentedServer(t)
	_, js := as("admin")
	provision(t, js, false)
	w := startPiped(t, []string{"nohup"}, "run", "MILLRACE_NATS_URL=nats://worker:worker-password@"+s.Addr().String(), "MILLRACE_OPERATORS=crc32c")
	w.await(t, `"msg":"working"`)
	if err := w.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "ingest.web", []byte("after")); err != nil {
		t.Fatal(err)
	}
	awaitResults(t, js, 1)
	if status := w.signal(t, syscall.SIGTERM); status.ExitStatus() != 0 {
		t.Errorf("the worker ended with %v (signal %v), want status 0", status.ExitStatus(), status.Signal())
	}
}

// TestDemoAndBenchEndOnSIGHUP checks that both commands exit with status 1, as after Ctrl-C, and remove their files.
func TestDemoAndBenchEndOnSIGHUP(t *testing.T) {
	t.Parallel()
	hangUps(t)
	for name, c := range map[string]struct{ args, begun string }{
		"demo":  {"demo --payloads 100000000", "device host"},
		"bench": {"bench nats --bytes 64 --row null", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startPiped(t, nil, c.args)
			w.await(t, c.begun)
			if status := w.signal(t, syscall.SIGHUP); status.Signaled() || status.ExitStatus() != 1 {
				t.Errorf("the command ended with %v (signal %v), want status 1", status.ExitStatus(), status.Signal())
			}
			if left, err := os.ReadDir(w.temp); err != nil || len(left) > 0 {
				t.Errorf("the command left %v (%v)", left, err)
			}
		})
	}
}

// piped is a worker whose output is a pipe that the test can close.
type piped struct {
	cmd  *exec.Cmd
	out  io.ReadCloser
	read *bufio.Reader
	temp string
}

// startPiped starts the worker with args and env. prefix is a command that runs the worker, or nil.
func startPiped(t *testing.T, prefix []string, args string, env ...string) *piped {
	t.Helper()
	programs(t)
	line := append(append(append([]string{}, prefix...), binary), strings.Fields(args)...)
	w := &piped{cmd: exec.Command(line[0], line[1:]...), temp: t.TempDir()}
	w.cmd.Env, w.cmd.Dir = environment(append(env, "MILLRACE_LOG_FORMAT=json", "TMPDIR="+w.temp)...), t.TempDir()
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stdout, w.cmd.Stderr, w.out, w.read = in, in, r, bufio.NewReader(r)
	if err := errors.Join(w.cmd.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // usually it has already ended
		_ = w.out.Close()        // the test may have closed it
	})
	return w
}

// await reads until a line of the output contains text.
func (p *piped) await(t *testing.T, text string) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for {
		line, err := p.read.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("the worker did not print %q: %v", text, err)
		}
	}
}

// signal sends a signal, waits for the end of the process, and returns its status.
func (p *piped) signal(t *testing.T, s os.Signal) syscall.WaitStatus {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, p.read) }() // a full pipe would block the worker
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait() // ProcessState has the result
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func awaitResults(t *testing.T, js jetstream.JetStream, n uint64) {
	t.Helper()
	natstest.Until(t, fmt.Sprintf("%d results are stored", n), func() bool { return streamMessages(t, js, "RESULTS") == n })
}
