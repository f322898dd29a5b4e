package ingest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
)

// This file has devices and operators that fail or that tests control.

// closeLast closes a device at the end of the test. An error fails the test, except the error of a lost device.
func closeLast(t testing.TB, d device.Device) {
	t.Cleanup(func() {
		if err := d.Close(); err != nil && d.Err() == nil {
			t.Errorf("closing the device: %v", err)
		}
		// Package testing keeps this function until the last test has ended, and a device uses megabytes.
		d = nil
	})
}

func hostDevice(t testing.TB) device.Device {
	t.Helper()
	return openHost(t, operator.HostKernels())
}

func openHost(t testing.TB, kernels []device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	check(t, err)
	closeLast(t, d)
	return d
}

// simDevice opens a simulated device without delays and with the given faults.
func simDevice(t testing.TB, faults ...sim.Fault) *sim.Device {
	t.Helper()
	return openSim(t, operator.HostKernels(), faults...)
}

func openSim(t testing.TB, kernels []device.HostKernel, faults ...sim.Fault) *sim.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Kernels: kernels, Faults: faults})
	check(t, err)
	closeLast(t, d)
	return d
}

// marker is part of each payload that breaks a device of poisonedSim.
var marker = []byte("\x00breaks the device\x00")

func poisonedSim(t testing.TB) device.Device {
	t.Helper()
	return simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Marker: marker})
}

// named is a device with a given ID.
type named struct {
	device.Device
	id string
}

func (d named) Info() device.Info {
	info := d.Device.Info()
	info.ID = d.id
	return info
}

// ailing is a device on which batches fail, starting with number from.
type ailing struct {
	device.Device
	fails error // error of a refused batch; an error that wraps ErrLost loses the device
	from  int   // number of the first batch that fails, from 1
	times int   // number of batches that fail; 0 means all
	lies  *atomic.Bool
	with  []byte // text in the payloads whose batches fail; nil means all batches

	mu      sync.Mutex
	batches int
	lost    error
}

func (d *ailing) Enqueue(commands []device.Command) error {
	if d.concerns(commands) {
		if err := d.next(); err != nil {
			return err
		}
	}
	return d.Device.Enqueue(commands)
}

func (d *ailing) concerns(commands []device.Command) bool {
	for _, c := range commands {
		if c.Kind == device.DoCopyIn && bytes.Contains(c.Host.Bytes(), d.with) {
			return true
		}
	}
	return d.with == nil
}

func (d *ailing) next() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return d.lost
	}
	d.batches++
	if d.batches < d.from || d.times > 0 && d.batches >= d.from+d.times {
		return nil
	}
	if d.lies != nil {
		d.lies.Store(true)
	}
	if errors.Is(d.fails, device.ErrLost) {
		d.lost = d.fails
	}
	return d.fails
}

func (d *ailing) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return d.lost
	}
	return d.Device.Err()
}

func (d *ailing) Check(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	return d.Device.Check(ctx)
}

// openAiling opens a host device for use in an ailing one. It ignores the error of Close, because a pipeline may
// leave resources open there.
func openAiling(t testing.TB, kernels []device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	check(t, err)
	t.Cleanup(func() {
		_ = d.Close()
		d = nil // as in closeLast
	})
	return d
}

// kernel wraps functions of a host kernel. A nil function leaves the kernel's own.
type kernel struct {
	device.HostKernel
	needs func(s device.Shape, n device.Needs) device.Needs
	run   func(b device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error
}

func (k kernel) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := k.HostKernel.Bind(params)
	return boundKernel{b, k}, err
}

type boundKernel struct {
	device.BoundHostKernel
	k kernel
}

func (b boundKernel) Needs(s device.Shape) device.Needs {
	n := b.BoundHostKernel.Needs(s)
	if b.k.needs == nil {
		return n
	}
	return b.k.needs(s, n)
}

func (b boundKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error {
	if b.k.run == nil {
		return b.BoundHostKernel.Run(rows, offsets, scratch, result, p)
	}
	return b.k.run(b.BoundHostKernel, rows, offsets, scratch, result, p)
}

// liar returns an operator that computes wrong results once lies is set.
func liar(of device.HostKernel, lies *atomic.Bool) device.HostKernel {
	return kernel{
		HostKernel: of,
		run: func(b device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error {
			err := b.Run(rows, offsets, scratch, result, p)
			if lies.Load() {
				result[0] ^= 1
			}
			return err
		},
	}
}

// unfit is the length of a payload on which the operators of picky, refuse and spoil fail.
const unfit = 5000

// unfitAt returns a function that makes payloads. The payloads at the indices in at are unfit, and longer than all
// others.
func unfitAt(at ...int) func(i int) []byte {
	return func(i int) []byte {
		if slices.Contains(at, i) {
			return bytes.Repeat([]byte{'x'}, unfit)
		}
		return corpus.Text(uint64(i)+1, i*7%400)
	}
}

// picky returns an operator that requests more than any device has if a batch's longest payload is unfit. The device
// then refuses the batch and stays usable. The request is for scratch, or else for more results than a batch holds.
func picky(of device.HostKernel, scratch bool) device.HostKernel {
	return kernel{HostKernel: of, needs: func(s device.Shape, n device.Needs) device.Needs {
		if s.Longest == unfit && scratch {
			n.Scratch = 1 << 40
		} else if s.Longest == unfit {
			n.Result = 1 << 40
		}
		return n
	}}
}

func pickyKernels() []device.HostKernel {
	kernels := operator.HostKernels()
	kernels[0] = picky(kernels[0], false)
	return kernels
}

// refused is another length, besides unfit, of records that refusing refuses.
const refused = unfit - 1

// refusing is an operator that refuses records of unfit or refused bytes. Its results are the records, followed by a
// status byte for each record.
type refusing struct{ operator.Operator }

func (r refusing) Refusal(results []byte, rows, row int) string {
	if results[rows*r.Stride()+row] == 0 {
		return ""
	}
	return notFitting
}

// notFitting is the reason with which refusing refuses a record.
const notFitting = "the record doesn't fit"

// noOther is no length of a record.
const noOther = math.MaxUint32

// withStatuses returns a kernel whose results have a status byte for each record at the end. statuses sets them.
func withStatuses(of device.HostKernel, set func(offsets []uint32, statuses []byte)) device.HostKernel {
	return kernel{
		HostKernel: of,
		needs: func(s device.Shape, n device.Needs) device.Needs {
			n.Result += s.Rows
			return n
		},
		run: func(b device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error {
			end := len(result) - (len(offsets) - 1)
			set(offsets, result[end:])
			return b.Run(rows, offsets, scratch, result[:end], p)
		},
	}
}

// refusingKernel returns the kernel of refusing. It also refuses records of length also.
func refusingKernel(of device.HostKernel, also uint32) device.HostKernel {
	return withStatuses(of, func(offsets []uint32, statuses []byte) {
		for i := range statuses {
			statuses[i] = 0
			if size := offsets[i+1] - offsets[i]; size == unfit || size == refused || size == also {
				statuses[i] = 1
			}
		}
	})
}

// replaceFirst replaces the rig's first operator, crc32c, and its kernel. It returns all kernels.
func (r *rig) replaceFirst(o func(operator.Operator) operator.Operator, k func(device.HostKernel) device.HostKernel) []device.HostKernel {
	r.opts.Operators = slices.Clone(r.opts.Operators)
	r.opts.Operators[0] = o(r.opts.Operators[0])
	kernels := operator.HostKernels()
	kernels[0] = k(kernels[0])
	return kernels
}

// refuse makes the rig's first operator, crc32c, refuse records of unfit bytes. It returns a device with that
// operator.
func (r *rig) refuse(t testing.TB) device.Device { return openHost(t, r.refuseAlso(noOther)) }

// refuseAlso is like refuse, but also refuses records of length also, and returns the kernels.
func (r *rig) refuseAlso(also uint32) []device.HostKernel {
	return r.replaceFirst(func(o operator.Operator) operator.Operator { return refusing{o} },
		func(k device.HostKernel) device.HostKernel { return refusingKernel(k, also) })
}

// spoilt is an operator that has no results for a batch with a record of unfit bytes. Its results are the records,
// followed by a status byte for each record.
type spoilt struct{ operator.Operator }

func (s spoilt) Refusal([]byte, int, int) string { return "" }

func (s spoilt) FailedBatch(results []byte, rows int) string {
	if results[rows*s.Stride()] == 0 {
		return ""
	}
	return "a pass failed"
}

func (s spoilt) Overlong([]byte, []uint32, int) string { return "" }

func (s spoilt) Fault(string) string { return "" }

// spoil makes the rig's first operator, crc32c, fail on batches with a record of unfit bytes. It returns a device
// with that operator.
func (r *rig) spoil(t testing.TB) device.Device {
	kernels := r.replaceFirst(func(o operator.Operator) operator.Operator { return spoilt{o} }, func(k device.HostKernel) device.HostKernel {
		return withStatuses(k, func(offsets []uint32, statuses []byte) {
			bad := byte(0)
			for i := range statuses {
				if offsets[i+1]-offsets[i] == unfit {
					bad = 1
				}
			}
			for i := range statuses {
				statuses[i] = bad
			}
		})
	})
	return openHost(t, kernels)
}

// watch wraps a device's first operator. Tests use it to observe submitted batches and to delay their computation.
type watch struct {
	submitted chan device.Shape // shapes of submissions; the first is the largest batch

	mu    sync.Mutex
	gate  chan struct{} // closed when batches may be computed
	plans chan struct{} // closed when batches may be planned
}

// watchedDevice opens a host device with a watch and returns both.
func watchedDevice(t testing.TB) (device.Device, *watch) {
	t.Helper()
	kernels, w := watchKernels(operator.HostKernels())
	return openHost(t, kernels), w
}

// watchKernels wraps the first of the kernels in a watch and returns both.
func watchKernels(kernels []device.HostKernel) ([]device.HostKernel, *watch) {
	w := &watch{submitted: make(chan device.Shape, 1024), gate: make(chan struct{}), plans: make(chan struct{})}
	close(w.gate)
	close(w.plans)
	kernels[0] = kernel{
		HostKernel: kernels[0],
		needs: func(s device.Shape, n device.Needs) device.Needs {
			select {
			case w.submitted <- s:
			default: // no test is waiting
			}
			w.pass(&w.plans)
			return n
		},
		run: func(b device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error {
			w.pass(&w.gate)
			return b.Run(rows, offsets, scratch, result, p)
		},
	}
	return kernels, w
}

func (w *watch) pass(gate *chan struct{}) {
	w.mu.Lock()
	c := *gate
	w.mu.Unlock()
	<-c
}

// hold prevents the computation of batches until open is called. It discards earlier submissions.
func (w *watch) hold(t testing.TB) (open func()) {
	open = w.shut(t, &w.gate)
	for len(w.submitted) > 0 {
		<-w.submitted
	}
	return open
}

// holdPlans prevents the planning of batches until open is called. Inputs that arrive earlier stay queued. A new
// pipeline plans its largest batch, so it must be created before holdPlans is called.
func (w *watch) holdPlans(t testing.TB) (open func()) { return w.shut(t, &w.plans) }

func (w *watch) shut(t testing.TB, gate *chan struct{}) (open func()) {
	shut := make(chan struct{})
	w.mu.Lock()
	*gate = shut
	w.mu.Unlock()
	open = sync.OnceFunc(func() { close(shut) })
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
