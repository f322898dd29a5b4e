//go:build cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
)

// shortPatience is the ClosePatience of devices whose tests wait for it to pass.
const shortPatience = 50 * time.Millisecond

// hanging returns a device with one object of each kind. No work on this device ends.
func hanging(t *testing.T) *gear {
	t.Helper()
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t), ClosePatience: shortPatience})
	g.loadOperators(t)
	fakecuda.Set(t, "call=cudaMemsetAsync how=hang")
	if err := g.stream.Fill(g.memory, 1); err != nil {
		t.Fatal(err)
	}
	return g
}

// Every call that closes an object returns, although the device's work doesn't end. Then the device is lost, and every
// further call returns at once.
func TestClosingEndsThoughWorkDoesNot(t *testing.T) {
	for name, closes := range map[string]func(g *gear) error{
		"stream":   func(g *gear) error { return g.stream.Close() },
		"host":     func(g *gear) error { return g.dev.FreeHost(g.host) },
		"memory":   func(g *gear) error { return g.dev.Free(g.memory) },
		"kernel":   func(g *gear) error { return g.kernel.Close() },
		"operator": func(g *gear) error { return g.module.Close() },
		"device":   func(g *gear) error { return g.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := hanging(t)
			err := closes(g)
			if !errors.Is(err, device.ErrLost) || errors.Is(err, device.ErrKernelFault) {
				t.Errorf("got %v, want %v", err, device.ErrLost)
			}
			if want := fmt.Sprintf("within %v", shortPatience); err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
			if err := g.dev.Err(); !errors.Is(err, device.ErrLost) {
				t.Errorf("the device's error is %v", err)
			}
			for _, err := range []error{g.stream.Close(), g.event.Close(), g.pool.Close(), g.kernel.Close(), g.module.Close(), g.dev.Close()} {
				if err != nil && !errors.Is(err, device.ErrLost) {
					t.Errorf("got %v, want %v", err, device.ErrLost)
				}
			}
			fakecuda.Set(t, "") // lets the abandoned call return
		})
	}
}

// A call that doesn't return from the driver must not prevent the object or the device from being closed.
func TestClosingEndsThoughACallDoesNot(t *testing.T) {
	g := hanging(t)
	ended := make(chan struct{})
	go func() {
		_ = g.stream.Synchronize() // any result is fine, because the device is abandoned by then
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

// On a lost device, closing makes no CUDA calls. All calls would fail, and some would block forever.
func TestClosingALostDeviceCallsNothing(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t), ClosePatience: time.Hour})
	fakecuda.Set(t, "call=cudaMemsetAsync code=719 how=device")
	if err := g.stream.Fill(g.memory, 1); !errors.Is(err, device.ErrKernelFault) {
		t.Fatalf("got %v, want %v", err, device.ErrKernelFault)
	}
	fakecuda.Set(t, "call=cudaMemsetAsync how=hang")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, err := range []error{
			g.stream.Close(), g.event.Close(), g.kernel.Close(), g.dev.FreeHost(g.host), g.dev.Free(g.memory), g.dev.Close(),
		} {
			if !errors.Is(err, device.ErrLost) {
				t.Errorf("got %v, want %v", err, device.ErrLost)
			}
		}
	}()
	select {
	case <-closed:
	case <-shortly().Done():
		t.Fatal("closing a lost device waits for it")
	}
}

// A busy device has not failed. Check returns when its context ends, and it returns nil once the device answers.
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
	fakecuda.Set(t, "call=cudaMemcpyAsync from=1000000") // the work ends, but the pending check never ran
	if err := g.dev.Check(shortly()); !errors.Is(err, device.ErrLost) {
		t.Errorf("a check without an answer: got %v, want %v", err, device.ErrLost)
	}
}

// An answer to an earlier check is not enough, because the device may have failed since.
func TestAnswerFromBeforeIsNotEnough(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	fakecuda.Set(t, "call=cudaStreamQuery code=600 how=always") // the check runs, but its completion is not reported
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

// A device that answers incorrectly is lost, and the error has no code.
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
		t.Errorf("the device's error is %v", again)
	}
}

// If CUDA refuses an argument after a fault, the error reports the fault and not an invalid argument.
func TestRefusalOfALostDevice(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	fakecuda.Set(t, "call=cudaMemsetAsync code=1 how=device")
	if err := g.stream.Fill(g.memory, 1); !errors.Is(err, device.ErrLost) || errors.Is(err, device.ErrKernelFault) {
		t.Errorf("got %v, want %v", err, device.ErrLost)
	}
}

// Event times are available even if the device doesn't reach the clock's anchors.
func TestTimeOfABusyDevice(t *testing.T) {
	g := newGearWith(t, cuda.Options{Library: fakecuda.Library(t)})
	before, err := g.timed.Time()
	if err != nil {
		t.Fatal(err)
	}
	fakecuda.Set(t, "call=cudaEventQuery code=600 how=always")
	for old := g.dev.Now() + 150*time.Millisecond; g.dev.Now() < old; { // waits until the anchor is too old
		if at, err := g.timed.Time(); err != nil || at != before {
			t.Fatalf("the event was at %v before, and is at %v now (%v)", before, at, err)
		}
	}
}
