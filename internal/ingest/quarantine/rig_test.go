package quarantine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

type paperMsg struct {
	inflight.Message
	data []byte
}

func (m *paperMsg) Data() []byte { return m.data }

type ends struct{ finished, back, dead int }

func (e *ends) Store(_ context.Context, b *inflight.Batch) {
	e.finished += len(b.Unsettled())
}

func (e *ends) StoreLater(ctx context.Context, b *inflight.Batch) {
	e.Store(ctx, b)
}

func (e *ends) GiveBack(*inflight.Delivery, error) { e.back++ }

func (e *ends) DeadLetter(context.Context, *inflight.Delivery, results.Reason, error) bool {
	e.dead++
	return true
}

// isolate returns a pipeline and an Isolation for tries on a device, and their outcomes.
func isolate(t *testing.T, d device.Device, lanes int) (*streams.Pipeline, Isolation, *ends) {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := streams.New(d, streams.Options{Operators: ops, Lanes: lanes, BatchBytes: 1 << 20, BatchPayloads: 1024, ScratchLimit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pipe.Close(); err != nil && d.Err() == nil {
			t.Errorf("closing the pipeline: %v", err)
		}
	})
	pipes := []*streams.Pipeline{pipe}
	pool, err := inflight.NewPool(pipes, memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: ops}})
	if err != nil {
		t.Fatal(err)
	}
	log, counted := slog.New(slog.DiscardHandler), &ends{}
	const limit = 5
	return pipe, Isolation{
		Pool: pool, Judge: NewJudge(pipes, &inflight.Progress{}, log), Ends: counted, Levels: Levels{Full: 1024, Limit: limit}, Limit: limit, Log: log,
		Device: func(p *streams.Pipeline) Device {
			return &Pipeline{Pipe: p, Pool: pool, Observe: func(*inflight.Batch) {}}
		},
	}, counted
}

// heldKernel is a kernel that waits for a holdup.
type heldKernel struct {
	device.HostKernel
	h *holdup
}

type heldBound struct {
	device.BoundHostKernel
	h *holdup
}

func (k heldKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := k.HostKernel.Bind(params)
	return heldBound{b, k.h}, err
}

func (k heldBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	k.h.wait()
	return k.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}

// holdup blocks kernels while it is closed.
type holdup struct {
	began chan struct{} // receives a token for each blocked kernel
	mu    sync.Mutex
	open  chan struct{}
}

func (h *holdup) wait() {
	h.mu.Lock()
	open := h.open
	h.mu.Unlock()
	h.began <- struct{}{}
	<-open
}

// close blocks kernels until the returned function is called.
func (h *holdup) close() (open func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.open = c
	return func() { close(c) }
}

// heldDevice returns a host device with a holdup for its kernels.
func heldDevice(t *testing.T) (device.Device, *holdup) {
	t.Helper()
	h := &holdup{began: make(chan struct{}, 64)}
	kernels := operator.HostKernels()
	for i, k := range kernels {
		kernels[i] = heldKernel{k, h}
	}
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d, h
}

func faultyDevice(t *testing.T, faults ...sim.Fault) device.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Kernels: operator.HostKernels(), Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && d.Err() == nil { // a lost device cannot be closed without an error
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// paperInput returns a delivery with a payload of n bytes that no server sent.
func paperInput(n int) inflight.Delivery {
	return inflight.Delivery{Msg: &paperMsg{data: make([]byte, n)}, Sequence: 1, NumDelivered: 1, Received: time.Now()}
}
