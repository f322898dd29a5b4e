package host_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"millrace/internal/device"
)

// oneRow is the batch that these tests post: a row of no bytes.
var oneRow = device.Shape{Rows: 1}

// resident starts a kernel as a resident one.
func (r *rig) resident(name string) device.Resident {
	r.Helper()
	resident, err := r.dev.Resident(r.kernel(name), oneRow)
	r.ok(err)
	return resident
}

// TestResidentIsDoneWhenItsKernelIs: not before.
func TestResidentIsDoneWhenItsKernelIs(t *testing.T) {
	work := make(chan struct{})
	r := newRig(t, kernelFunc(func(_ []byte, _ []uint32, result []byte, _ device.Parallel) error {
		<-work
		result[0]++
		return nil
	}))
	region, result := r.host(8), r.host(64)
	resident := r.resident("func")
	for round := range 3 {
		r.ok(resident.Post(oneRow, region, 0, result))
		for range 100 {
			done, err := resident.Done()
			r.ok(err)
			if done {
				t.Fatal("a batch is done whose kernel has not returned")
			}
		}
		work <- struct{}{}
		for done := false; !done; runtime.Gosched() {
			var err error
			done, err = resident.Done()
			r.ok(err)
		}
		if got := result.Bytes()[0]; got != byte(round+1) {
			t.Errorf("the kernel has run %d times, want %d", got, round+1)
		}
	}
	r.ok(resident.Close())
}

// TestResidentParks: with nothing to do its goroutine waits and does not spin, and a batch wakes it.
func TestResidentParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, spread)
		region, result := r.host(8), r.host(64)
		resident := r.resident("func")
		for range 3 {
			synctest.Wait() // returns when every goroutine waits
			clear(result.Bytes())
			r.ok(resident.Post(oneRow, region, 0, result))
			synctest.Wait()
			done, err := resident.Done()
			r.ok(err)
			if !done || result.Bytes()[63] != 64 {
				t.Errorf("a parked resident was given a batch: done %v, last byte %d, want 64", done, result.Bytes()[63])
			}
		}
		r.ok(resident.Close())
		r.ok(r.s.Close())
		var leak *device.LeakError
		if err := r.dev.Close(); !errors.As(err, &leak) || len(leak.Open) != 3 {
			t.Errorf("close with a kernel and two buffers open: got %v", err)
		}
	})
}

// TestResidentGoesWithDevice: a device that closes leaves no goroutine of a resident behind, busy or not.
func TestResidentGoesWithDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, spread)
		region, result := r.host(8), r.host(64)
		busy := r.resident("func")
		r.resident("func")
		r.ok(busy.Post(oneRow, region, 0, result))
		r.ok(r.s.Close())
		var leak *device.LeakError
		if err := r.dev.Close(); !errors.As(err, &leak) || len(leak.Open) != 2+2+2 {
			t.Errorf("close with two residents, their kernels and two buffers open: got %v", err)
		}
	})
}

// TestResidentFailureLosesDevice: a kernel that fails, and a table that leads out of the rows, are what they are in a
// launch.
func TestResidentFailureLosesDevice(t *testing.T) {
	fail := kernelFunc(func([]byte, []uint32, []byte, device.Parallel) error { panic("no more grain") })
	for name, c := range map[string]struct {
		kernel kernelFunc
		end    byte // of the row
		says   string
	}{
		"panic": {fail, 0, "no more grain"}, "table": {spread, 9, "offset 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.kernel)
			region, result := r.host(8), r.host(64)
			region.Bytes()[4] = c.end
			resident := r.resident("func")
			r.ok(resident.Post(oneRow, region, 0, result))
			var done bool
			var err error
			for ; !done && err == nil; runtime.Gosched() {
				done, err = resident.Done()
			}
			r.fails(err, device.ErrLost)
			r.fails(resident.Close(), device.ErrLost)
			r.wantLost(c.says)
		})
	}
}
