//go:build cgo

package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
)

// shortPatience is that of devices in these tests: it is waited out.
const shortPatience = 50 * time.Millisecond

// hanging is a device with one of everything, on which no work ends any more.
func hanging(t *testing.T) *gear {
	t.Helper()
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t), ClosePatience: shortPatience})
	fakecuda.Set(t, "call=cudaMemsetAsync how=hang")
	if err := g.stream.Fill(g.memory, 1); err != nil {
		t.Fatal(err)
	}
	return g
}

// Each way to close something ends though the device's work does not, and the device is lost then: everything behind it
// comes back at once.
func TestClosingEndsThoughWorkDoesNot(t *testing.T) {
	for name, closes := range map[string]func(g *gear) error{
		"stream": func(g *gear) error { return g.stream.Close() },
		"host":   func(g *gear) error { return g.dev.FreeHost(g.host) },
		"memory": func(g *gear) error { return g.dev.Free(g.memory) },
		"kernel": func(g *gear) error { return g.kernel.Close() },
		"device": func(g *gear) error { return g.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := hanging(t)
			began := time.Now()
			if err := closes(g); !errors.Is(err, device.ErrLost) || errors.Is(err, device.ErrKernelFault) {
				t.Errorf("got %v, want %v", err, device.ErrLost)
			}
			if took := time.Since(began); took < shortPatience {
				t.Errorf("it gave up after %v, before its patience of %v", took, shortPatience)
			}
			if err := g.dev.Err(); !errors.Is(err, device.ErrLost) {
				t.Errorf("the device says %v", err)
			}
			for _, err := range []error{g.stream.Close(), g.event.Close(), g.pool.Close(), g.kernel.Close(), g.dev.Close()} {
				if err != nil && !errors.Is(err, device.ErrLost) {
					t.Errorf("got %v, want %v", err, device.ErrLost)
				}
			}
			fakecuda.Set(t, "") // lets the call end that was left alone
		})
	}
}

// A call that does not come back from the driver keeps neither the object nor the device from being closed.
func TestClosingEndsThoughACallDoesNot(t *testing.T) {
	g := hanging(t)
	ended := make(chan struct{})
	go func() {
		_ = g.stream.Synchronize() // with whatever: the device is given up meanwhile
		close(ended)
	}()
	for _, closes := range []func() error{g.stream.Close, g.dev.Close} {
		if err := closes(); !errors.Is(err, device.ErrLost) {
			t.Errorf("got %v, want %v", err, device.ErrLost)
		}
	}
	fakecuda.Set(t, "")
	<-ended
}

// On a lost device closing makes no call at all: any would fail, and some would wait for ever.
func TestClosingALostDeviceCallsNothing(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t), ClosePatience: patience})
	fakecuda.Set(t, "call=cudaMemsetAsync code=719 how=device")
	if err := g.stream.Fill(g.memory, 1); !errors.Is(err, device.ErrKernelFault) {
		t.Fatalf("got %v, want %v", err, device.ErrKernelFault)
	}
	fakecuda.Set(t, "call=cudaMemsetAsync how=hang")
	began := time.Now()
	for _, err := range []error{
		g.stream.Close(), g.event.Close(), g.kernel.Close(), g.dev.FreeHost(g.host), g.dev.Free(g.memory), g.dev.Close(),
	} {
		if !errors.Is(err, device.ErrLost) {
			t.Errorf("got %v, want %v", err, device.ErrLost)
		}
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("closing a lost device took %v", took)
	}
}

// A busy device has not failed: Check returns with its context, and says yes once the device answers.
func TestCheckWaitsForABusyDevice(t *testing.T) {
	g := hanging(t)
	ctx, cancel := context.WithTimeout(context.Background(), shortPatience)
	defer cancel()
	if err := g.dev.Check(ctx); !errors.Is(err, device.ErrNotReady) || errors.Is(err, device.ErrLost) {
		t.Errorf("a busy device: got %v, want %v", err, device.ErrNotReady)
	}
	if err := g.dev.Err(); err != nil {
		t.Errorf("a busy device counts as lost: %v", err)
	}
	fakecuda.Set(t, "call=cudaMemcpyAsync from=1000000") // the work ends: but the question that was asked meanwhile was never carried out
	if err := g.dev.Check(shortly()); !errors.Is(err, device.ErrLost) {
		t.Errorf("a question that got no answer: got %v, want %v", err, device.ErrLost)
	}
}

// An answer to what was asked before is not enough: the device may have failed since.
func TestAnswerFromBeforeIsNotEnough(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	fakecuda.Set(t, "call=cudaStreamQuery code=600 how=always") // the question is carried out, and nobody is told
	ctx, cancel := context.WithTimeout(context.Background(), shortPatience)
	defer cancel()
	if err := g.dev.Check(ctx); !errors.Is(err, device.ErrNotReady) {
		t.Fatalf("got %v, want %v", err, device.ErrNotReady)
	}
	fakecuda.Set(t, "answer=1")
	if err := g.dev.Check(shortly()); !errors.Is(err, device.ErrLost) {
		t.Errorf("got %v, want %v", err, device.ErrLost)
	}
}

// A device that answers wrongly is lost, and says so without a code.
func TestWrongAnswerLosesTheDevice(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	if err := g.dev.Check(shortly()); err != nil {
		t.Fatal(err)
	}
	fakecuda.Set(t, "answer=1")
	err := g.dev.Check(shortly())
	var e *device.Error
	if !errors.As(err, &e) || !errors.Is(e.Kind, device.ErrLost) || e.Code != 0 {
		t.Errorf("got %v, want %v without a code", err, device.ErrLost)
	}
	if again := g.dev.Err(); !errors.Is(again, device.ErrLost) {
		t.Errorf("the device says %v", again)
	}
}

// An argument that CUDA refuses on a device that has had a fault is the fault's, not the caller's.
func TestRefusalOfALostDevice(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	fakecuda.Set(t, "call=cudaMemsetAsync code=1 how=device")
	if err := g.stream.Fill(g.memory, 1); !errors.Is(err, device.ErrLost) || errors.Is(err, device.ErrKernelFault) {
		t.Errorf("got %v, want %v", err, device.ErrLost)
	}
}

// Times are still to be had of a device that does not reach the clock's anchors.
func TestTimeOfABusyDevice(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	before, err := g.timed.Time()
	if err != nil {
		t.Fatal(err)
	}
	fakecuda.Set(t, "call=cudaEventQuery code=600 how=always")
	for old := g.dev.Now() + 150*time.Millisecond; g.dev.Now() < old; { // older than an anchor gets
		if at, err := g.timed.Time(); err != nil || at != before {
			t.Fatalf("the event was at %v before, and is at %v now (%v)", before, at, err)
		}
	}
}
