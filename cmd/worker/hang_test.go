package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// hangs is a variable that makes the CPU device of the worker hang on batches that contain hangsOn.
const (
	hangs   = "TEST_BINARY_HANGS"
	hangsOn = "endless"
)

// hangingKernel is a kernel that hangs on some batches.
type hangingKernel struct{ device.HostKernel }

func (h hangingKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := h.HostKernel.Bind(params)
	return hangingOperator{bound}, err
}

type hangingOperator struct{ device.BoundHostKernel }

func (h hangingOperator) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	if bytes.Contains(rows, []byte(hangsOn)) {
		select {}
	}
	return h.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}

// hangingKernels returns the worker's CPU kernels as hanging kernels.
func hangingKernels() []device.HostKernel {
	kernels := operator.HostKernels()
	for i, k := range kernels {
		kernels[i] = hangingKernel{k}
	}
	return kernels
}

// TestAWorkerWhoseDeviceHangsEnds checks that the worker exits with status 70 after the batch deadline. If a signal stops the worker
// earlier, it must exit after the drain timeout.
func TestAWorkerWhoseDeviceHangsEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, min, max string
		stop           bool
		want           string
	}{
		{"by itself", "1s", "2s", false, "the device is lost"},
		{"told to stop", "10s", "1h", true, "the device did not finish in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			js := client(t, s)
			p := start(t, []string{hangs + "=1", "MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=127.0.0.1:0",
				"MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json", "MILLRACE_DRAIN_TIMEOUT=1s",
				"MILLRACE_BATCH_DEADLINE_MIN=" + c.min, "MILLRACE_BATCH_DEADLINE_MAX=" + c.max})
			p.await(`"msg":"working"`)
			if _, err := js.Publish(context.Background(), "ingest.test", []byte(hangsOn)); err != nil {
				t.Fatal(err)
			}
			if c.stop {
				awaitBody(t, address(t, p, "serving metrics and health")+"metrics", `millrace_lanes{device="host",state="in_flight"} 1`)
				if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if !p.ended() {
				t.Fatalf("the worker did not end within %v", patience)
			}
			if code := p.cmd.ProcessState.ExitCode(); code != exitLost {
				t.Errorf("exit status %d, want %d", code, exitLost)
			}
			if !strings.Contains(p.text(), c.want) {
				t.Errorf("the output lacks %q", c.want)
			}
		})
	}
}

// hungPipelines returns pipelines on two devices. The first device never completes a batch.
func hungPipelines(t *testing.T, d streams.Deadline) (devices []device.Device, pipes []*streams.Pipeline) {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		dev, err := sim.Open(sim.Options{Seed: i, Kernels: operator.HostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		pipe, err := streams.New(dev, streams.Options{
			Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 10, ScratchLimit: 1 << 20, Operators: ops, Deadline: d,
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			t.Cleanup(dev.Hold())
		}
		devices, pipes = append(devices, dev), append(pipes, pipe)
	}
	return devices, pipes
}

// compute submits a batch of one payload.
func compute(t *testing.T, pipe *streams.Pipeline) {
	t.Helper()
	b, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Append([]byte("payload"))
	if err := b.Submit(streams.ClosedByDrain); err != nil {
		t.Fatal(err)
	}
}

// TestHealthNamesTheDeviceThatHangs checks that the health report names only the hanging device.
func TestHealthNamesTheDeviceThatHangs(t *testing.T) {
	devices, pipes := hungPipelines(t, streams.Deadline{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond})
	h := telemetry.NewHealth(telemetry.HealthOptions{
		Connected: func() bool { return true },
		Work: func() (work []telemetry.Work) {
			for i, pipe := range pipes {
				work = append(work, deviceWork(devices[i], pipe))
			}
			return work
		},
	})
	h.Started()
	if err := h.Live(); err != nil {
		t.Errorf("before any batch runs: %v", err)
	}
	compute(t, pipes[0])
	compute(t, pipes[1])
	if b := <-pipes[1].Completed(); b.Err() != nil {
		t.Errorf("the device that works: %v", b.Err())
	}
	<-pipes[0].Over()
	live, ready := h.Live(), h.Ready()
	for _, err := range []error{live, ready} {
		if err == nil || !strings.Contains(err.Error(), "sim-0: device sim-0: operator crc32c: await batch: device lost") || strings.Contains(err.Error(), "sim-1") {
			t.Errorf("health returned %v, want only the hanging device", err)
		}
	}
	if err := pipes[1].Close(); err != nil {
		t.Error(err)
	}
}

// TestClosingIsBounded checks that the process ends although a component still waits for a device.
func TestClosingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{log: slog.New(slog.DiscardHandler)}
		stuck, order := make(chan struct{}), []string{}
		defer close(stuck)
		a.onClose(func() error { order = append(order, "first"); return nil })
		a.onCloseDevice("GPU-1", func() error { <-stuck; return nil })
		a.onClose(func() error { order = append(order, "last"); return errors.New("a failure") })
		began := time.Now()
		err := a.closeAll(time.Second, time.Minute)
		if took := time.Since(began); took != time.Second {
			t.Errorf("closing took %v, want 1s, the limit for devices", took)
		}
		if !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "a failure") || exitCode(err) != exitLost {
			t.Errorf("closing: %v, want both failures", err)
		}
		if got := fmt.Sprint(order); got != "[last first]" {
			t.Errorf("closed in the order %s", got)
		}
	})
}

// TestOverdue checks that the worker becomes overdue after the drain timeout plus endGrace. That time starts at a stop signal or at the
// loss of a device.
func TestOverdue(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const drain = 25 * time.Second
			a := &app{cfg: &config.Config{DrainTimeout: drain}}
			_, a.pipes = hungPipelines(t, streams.Deadline{Min: time.Second, Max: time.Second})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			over := a.overdue(ctx)
			time.Sleep(time.Hour) //nolint:forbidigo // the clock of a synctest bubble is virtual
			select {
			case <-over:
				t.Fatal("the worker is overdue before a stop signal")
			default:
			}
			if lost {
				compute(t, a.pipes[0])
				<-a.pipes[0].Over()
			} else {
				stop()
			}
			began := time.Now()
			<-over
			if took := time.Since(began); took != drain+endGrace {
				t.Errorf("overdue after %v, want %v", took, drain+endGrace)
			}
			for _, pipe := range a.pipes {
				if err := pipe.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
