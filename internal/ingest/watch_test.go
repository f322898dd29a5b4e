package ingest

import (
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// watch wraps a device's first operator. Tests use it to observe submitted batches and to delay their computation.
type watch struct {
	device.HostKernel
	submitted chan device.Shape // shapes of submissions; the first is the largest batch

	mu    sync.Mutex
	gate  chan struct{} // closed when batches may be computed
	plans chan struct{} // closed when batches may be planned; nil means planning is allowed
}

// watchedDevice opens a host device with a watch and returns both.
func watchedDevice(t testing.TB) (device.Device, *watch) {
	t.Helper()
	kernels, w := watchKernels(operator.HostKernels())
	return openHost(t, kernels), w
}

// watchKernels wraps the first of the kernels in a watch and returns both.
func watchKernels(kernels []device.HostKernel) ([]device.HostKernel, *watch) {
	w := &watch{HostKernel: kernels[0], submitted: make(chan device.Shape, 1024), gate: make(chan struct{})}
	close(w.gate)
	kernels[0] = w
	return kernels, w
}

func (w *watch) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := w.HostKernel.Bind(params)
	return &watchedKernel{b, w}, err
}

// hold prevents the computation of batches until open is called. It discards earlier submissions.
func (w *watch) hold(t testing.TB) (open func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	w.gate = gate
	w.mu.Unlock()
	for len(w.submitted) > 0 {
		<-w.submitted
	}
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return open
}

// holdPlans prevents the planning of batches until open is called. Inputs that arrive earlier stay queued. A new
// pipeline plans its largest batch, so it must be created before holdPlans is called.
func (w *watch) holdPlans(t testing.TB) (open func()) {
	plans := make(chan struct{})
	w.mu.Lock()
	w.plans = plans
	w.mu.Unlock()
	open = sync.OnceFunc(func() { close(plans) })
	t.Cleanup(open)
	return open
}

// await returns once a batch of that many payloads and bytes has been submitted. A device may check a batch
// repeatedly, so batches that a test distinguishes must differ.
func (w *watch) await(t testing.TB, rows, bytes int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case shape := <-w.submitted:
			if shape.Rows == rows && shape.Bytes == bytes {
				return
			}
		case <-deadline:
			t.Fatalf("no batch of %d payloads and %d bytes was submitted in %v", rows, bytes, patience)
		}
	}
}

// awaitAny returns once any batch has been submitted. The number of payloads in the batch depends on their arrival.
func (w *watch) awaitAny(t testing.TB) {
	t.Helper()
	select {
	case <-w.submitted:
	case <-time.After(patience):
		t.Fatalf("no batch was submitted in %v", patience)
	}
}

type watchedKernel struct {
	device.BoundHostKernel
	w *watch
}

func (k *watchedKernel) Needs(s device.Shape) device.Needs {
	select {
	case k.w.submitted <- s:
	default: // no test is waiting
	}
	k.w.mu.Lock()
	plans := k.w.plans
	k.w.mu.Unlock()
	if plans != nil {
		<-plans
	}
	return k.BoundHostKernel.Needs(s)
}

func (k *watchedKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	k.w.mu.Lock()
	gate := k.w.gate
	k.w.mu.Unlock()
	<-gate
	return k.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
