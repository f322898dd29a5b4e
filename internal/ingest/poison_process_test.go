package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// These tests run workers in separate processes that die because of their payloads. A signal kills them, or the GPU
// is lost, which no process survives. Each worker is a new process of the test binary.

// envWorker and envServer are environment variables that configure the worker process.
const (
	envWorker = "MILLRACE_TEST_WORKER" // makes this process a worker; host or cuda, with optional suffix -hang
	envServer = "MILLRACE_TEST_SERVER"
)

// statusLost is a worker's exit status after the loss of a device.
const statusLost = 70

func TestMain(m *testing.M) {
	if dir := os.Getenv(envServerDir); dir != "" {
		os.Exit(serveAlone(dir))
	}
	if kind := os.Getenv(envWorker); kind != "" {
		os.Exit(poisonedWorker(kind))
	}
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // keeps the value of -parallel, if any
		panic(err)
	}
	os.Exit(m.Run())
}

// atOnce is the default number of parallel tests. They mostly wait for a server, so it doesn't depend on the number
// of processors.
const atOnce = 8

// lethal is the start of a payload that breaks the device. The kernel library for tests uses the same value.
const lethal = "poison!\n"

// hanging is the start of a payload on which kernels never return. The kernel library for tests uses the same value.
const hanging = "endless\n"

// faulty is the operator that fails on these payloads. Its record is the payload's length.
type faulty struct{}

func (faulty) Name() string                      { return "faulty" }
func (faulty) String() string                    { return "faulty" }
func (faulty) Params() []byte                    { return nil }
func (faulty) Stride() int                       { return 4 }
func (faulty) Needs(s device.Shape) device.Needs { return device.Needs{Result: 4 * s.Rows} }

func (faulty) AppendJSON(dst, record []byte) []byte {
	return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(record)), 10)
}

func (faulty) MaxJSON() int { return len("4294967295") }

func (faulty) AppendReference(dst, payload []byte) []byte {
	return binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
}

// Bind makes faulty a kernel of the host device.
func (f faulty) Bind([]byte) (device.BoundHostKernel, error) { return f, nil }

// Run kills the process on a lethal payload without output or cleanup, like a driver bug. On a hanging payload it
// never returns.
func (faulty) Run(rows []byte, offsets []uint32, _, result []byte, _ device.Parallel) error {
	for i, end := range offsets[1:] {
		row := rows[offsets[i]:end]
		if bytes.HasPrefix(row, []byte(hanging)) {
			select {}
		}
		if bytes.HasPrefix(row, []byte(lethal)) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {} // until the signal arrives
		}
		binary.LittleEndian.PutUint32(result[4*i:], uint32(len(row)))
	}
	return nil
}

// poisonedWorker runs a worker on a device of the given kind until standard input ends. It returns the exit status.
func poisonedWorker(kind string) int {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // standard input ends when the parent closes it
		stop()
	}()
	err := runPoisoned(ctx, kind)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, device.ErrLost):
		return statusLost
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func runPoisoned(ctx context.Context, kind string) (err error) {
	dev, schedule, err := openPoisoned(kind)
	if err != nil {
		return err
	}
	opts := optionsFor([]operator.Operator{faulty{}}, slog.New(slog.NewTextHandler(os.Stderr, nil)), newTally())
	pipe, err := streams.New(dev, streams.Options{
		Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1024, ScratchLimit: 64 << 20, Operators: opts.Operators, Schedule: schedule,
		Deadline: streams.Deadline{Min: 2 * time.Second, Max: 3 * time.Second},
	})
	if err != nil {
		return err
	}
	nc, err := natsconn.Open(natsconn.Server{URL: os.Getenv(envServer)}, "millrace-test", opts.Logger, opts.Observer.Reconnected)
	if err != nil {
		return err
	}
	defer nc.Close()
	opts.MaxDeliver = poisonLimit
	w, err := NewWorker(ctx, nc, []*streams.Pipeline{pipe}, opts)
	switch {
	case ctx.Err() != nil:
		// The last input was settled while this process started.
		return nil
	case err != nil:
		return err
	}
	return w.Run(ctx) // the end of the process closes everything else
}

func openPoisoned(kind string) (device.Device, streams.Schedule, error) {
	if strings.HasPrefix(kind, "cuda") {
		d, err := cuda.Open(cuda.Options{Library: faultyLibrary()})
		return d, streams.Triple, err
	}
	d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{faulty{}}})
	return d, streams.Overlapped, err
}

// faultyLibrary returns the path of the kernel library with the operator. It is MILLRACE_FAULTY_KERNELS, or the
// output of `make kernels` by default.
func faultyLibrary() string {
	if path := os.Getenv("MILLRACE_FAULTY_KERNELS"); path != "" {
		return path
	}
	return filepath.Join("..", "..", "kernels", "build", "libmillrace-faulty.so")
}

// needGPU skips the test if there is no GPU or no kernel library. If MILLRACE_REQUIRE_GPU=1, it fails the test
// instead.
func needGPU(t *testing.T) {
	t.Helper()
	all, err := cuda.List(faultyLibrary())
	if err == nil && len(all) > 0 {
		return
	}
	message := fmt.Sprintf("NOT TESTED THAT A POISONOUS PAYLOAD CANNOT WEDGE A GPU: NO GPU OR NO LIBMILLRACE-FAULTY.SO HERE: %v", err)
	if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
		t.Fatalf("%s (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)", message)
	}
	t.Skipf("%s (SET MILLRACE_REQUIRE_GPU=1 TO FAIL INSTEAD)", message)
}

const poisonLimit = 6

// TestPoisonCannotWedgeProcesses restarts a worker whenever a payload kills it, like a supervisor.
func TestPoisonCannotWedgeProcesses(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"host", "cuda", "host-hang", "cuda-hang"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(kind, "cuda") {
				needGPU(t)
			}
			bad := lethal
			if strings.HasSuffix(kind, "-hang") {
				bad = hanging
			}
			const n, poison = 1500, 1234
			r := newRig(t)
			r.opts = optionsFor([]operator.Operator{faulty{}}, r.opts.Logger, r.tally)
			r.opts.AckWait = 2 * time.Second
			r.provision()
			payload := func(i int) []byte {
				if i == poison {
					return []byte(bad)
				}
				return fmt.Appendf(nil, "payload %d", i)
			}
			r.publish(n, payload)
			deaths := r.superviseProcesses(kind)
			t.Logf("%d deaths", deaths)
			if deaths < quarantine.LoneRuns || deaths > poisonLimit {
				t.Errorf("%d workers died, want %d to %d", deaths, quarantine.LoneRuns, poisonLimit)
			}
			r.wantApart(n, payload, deviceFault, poison)
		})
	}
}

// superviseProcesses runs workers until all inputs are settled. It returns the number of workers that died before.
func (r *rig) superviseProcesses(kind string) (deaths int) {
	r.Helper()
	binary, err := os.Executable()
	check(r.TB, err)
	for ; deaths <= poisonLimit; deaths++ {
		ctx, kill := context.WithTimeout(r.Context(), 4*patience)
		defer kill()
		cmd := exec.CommandContext(ctx, binary)
		cmd.Env = append(os.Environ(), envWorker+"="+kind, envServer+"="+r.workerURL)
		cmd.Stdout, cmd.Stderr = r.Log, r.Log
		input, err := cmd.StdinPipe()
		check(r.TB, err)
		check(r.TB, cmd.Start())
		run := &running{t: r.TB, done: make(chan error, 1)}
		go func() { run.done <- cmd.Wait() }()
		finished := r.awaitEnd(run)
		if err := input.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // already closed if the worker has ended
			r.Fatal(err)
		}
		err, lost := <-run.done, cmd.ProcessState.ExitCode() == statusLost
		switch {
		case finished && err == nil:
			return deaths
		case kind != "host" && !lost:
			r.Fatalf("the worker ended with %v, want status %d", err, statusLost)
		case kind == "host" && (finished || err == nil):
			r.Fatalf("the worker ended with %v, everything settled: %t", err, finished)
		case finished: // the worker died with the last unsettled input
			return deaths + 1
		}
	}
	r.Fatalf("%d workers died, and the inputs are not settled", deaths)
	return deaths
}
