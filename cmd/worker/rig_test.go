package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/internal/ingest/natstest"
)

// patience limits each wait of a test.
const patience = natstest.Patience

// binary is the path of the worker. It is a link to the test binary, which runs as the worker if asWorker is set. The
// tests therefore link no second binary, and `go test -race` also checks the worker.
var binary string

// asWorker is a variable that makes the test binary run as the worker. Its value is the embedded server's address. At
// the default 127.0.0.1:4222, a user's server may listen.
const asWorker = "TEST_BINARY_AS_WORKER"

// atOnce is the default number of parallel tests. It is independent of the processors, because the tests mostly wait
// for a worker.
const atOnce = 6

func TestMain(m *testing.M) {
	if addr := os.Getenv(asWorker); addr != "" {
		embeddedAddr = addr
		if os.Getenv(hangs) != "" {
			hostKernels = hangingKernels
		}
		main()
	}
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // default of -parallel
		panic(err)
	}
	own, err := os.Executable()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "millrace-worker-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "worker")
	if err := os.Symlink(own, binary); err != nil {
		panic(err)
	}
	code := m.Run()
	endChromium()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// loopback returns a loopback address that no other test process uses. No other process can take a free port there
// before the worker listens on it.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>16&0x3f, os.Getpid()>>8&0xff, os.Getpid()&0xff)
}

// environment returns this process's environment without variables of Millrace and OpenTelemetry. It adds the host
// device, a separate address for an embedded server, and env.
func environment(env ...string) []string {
	var clean []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MILLRACE_") && !strings.HasPrefix(e, "OTEL_") {
			clean = append(clean, e)
		}
	}
	clean = append(clean, asWorker+"="+freeAddr(), "MILLRACE_DEVICE=host", "MILLRACE_HTTP_ADDR=")
	return append(clean, env...)
}

type result struct {
	code        int
	out, errors string
}

// programs skips a test that starts programs if -short is set. The test's race detector covers only its own process.
func programs(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: WITH -short NO TEST STARTS A PROGRAM OR A BROWSER: go test ./cmd/worker")
	}
}

// call runs the worker and waits for its end.
func call(t *testing.T, env []string, args ...string) result {
	t.Helper()
	programs(t)
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir = environment(env...), t.TempDir()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// readable returns the output, followed by the unescaped texts of JSON log records.
func (r result) readable() string {
	text := r.out + r.errors
	for line := range strings.Lines(r.errors) {
		var record map[string]any
		if json.Unmarshal([]byte(line), &record) != nil {
			continue // a plain text line
		}
		for _, value := range record {
			text += fmt.Sprint(value, "\n")
		}
	}
	return text
}

// want checks the exit code and that the output contains the texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit status %d, want %d", r.code, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.readable(), text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	if t.Failed() {
		t.Logf("standard output:\n%s\nstandard error:\n%s", r.out, r.errors)
	}
}

// process is a running worker.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	more  chan struct{}
	done  chan struct{}
}

// start starts the worker and collects its output.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(binary, args...), env)
}

// startCommand starts a command in an empty folder and collects its output.
func startCommand(t *testing.T, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	programs(t)
	p := &process{t: t, cmd: cmd, more: make(chan struct{}, 1), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = environment(env...), t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	go p.collect(r)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // usually it has already ended
		p.ended()
		if t.Failed() {
			t.Log(p.text())
		}
	})
	return p
}

// collect reads the output until the worker ends.
func (p *process) collect(r io.ReadCloser) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, scanner.Text())
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
	}
	_ = r.Close()
	_ = p.cmd.Wait() // ProcessState has the result
	close(p.done)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// await waits until the output contains text.
func (p *process) await(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(p.text(), text) {
		select {
		case <-p.more:
		case <-p.done:
			if !strings.Contains(p.text(), text) {
				p.t.Fatalf("the worker ended (%v) before it printed %q", p.cmd.ProcessState, text)
			}
			return
		case <-deadline:
			p.t.Fatalf("the worker did not print %q within %v", text, patience)
		}
	}
}

// terminate sends SIGTERM and returns the exit status.
func (p *process) terminate() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if !p.ended() {
		p.t.Fatalf("the worker did not stop within %v", patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended waits at most patience for the end of the process. It reports whether that happened.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	case <-time.After(patience):
		return false
	}
}

// lastPort is the port of the last address from freeAddr. It starts below the ports that the kernel assigns to
// connections.
var lastPort atomic.Int32

// freeAddr returns a local address without a listener. It returns each address once.
func freeAddr() string {
	for {
		addr := net.JoinHostPort(loopback(), strconv.Itoa(int(10000+lastPort.Add(1))))
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue // taken by a program that listens on all addresses
		}
		if err != nil {
			panic(err)
		}
		_ = l.Close() // the listener accepted no connection
		return addr
	}
}
