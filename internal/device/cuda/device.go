//go:build cgo

package cuda

import (
	"cmp"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/device"
)

// maxCompletions is the maximum number of outstanding Notify calls.
const maxCompletions = 1 << 16

// gpu is a GPU. It implements device.Device, device.Gater, device.Mapper, device.Ranger and device.Loader.
type gpu struct {
	lib    *library
	info   device.Info
	epoch  time.Time
	handle deviceHandle

	opened   atomic.Bool
	patience time.Duration // time limit for calls that close an object

	// Every call into the library holds mu for reading. Close sets closing and then takes mu for writing. After that,
	// no call is running and no call can follow.
	mu      sync.RWMutex
	closing atomic.Bool

	// Enqueue holds enqueuing for reading, because it uses streams, events and kernels without their own locks.
	enqueuing sync.RWMutex

	lost         atomic.Pointer[device.Error] // the first sticky fault
	pollingFault atomic.Bool
	clock        clock

	// gateMu allows gates to be opened while Close waits for their streams. gatesGone is set before the gates are
	// freed.
	gateMu    sync.Mutex
	gatesGone bool

	modules modules

	waiter
	registry

	unreported runtime.Cleanup // logs an error if the device is dropped without Close
}

// Open opens a GPU. The caller must close it. Open fails with device.ErrUnavailable if there is no library, driver or
// GPU. It fails with device.ErrABI if the library can't be used, and with device.ErrNotFound if the selected GPU
// doesn't exist.
func Open(o Options) (device.Device, error) {
	lib, err := openLibrary(o.Library)
	if err != nil {
		return nil, err
	}
	if err := lib.checkDeclared(); err != nil {
		return nil, err
	}
	info, err := lib.find(o.Ordinal)
	if err != nil {
		return nil, err
	}
	d := &gpu{lib: lib, info: info, epoch: time.Now(), patience: cmp.Or(o.ClosePatience, closePatience)}
	d.open = map[*object]struct{}{}
	d.modules.byName = map[string]*module{}
	d.memory, d.buffers = map[uint64]int{}, map[unsafe.Pointer]int{}
	if d.handle, err = lib.deviceOpen(info.Ordinal, maxCompletions); err != nil {
		return nil, d.checked(err)
	}
	if err := d.openParts(); err != nil {
		d.clock.close(d)
		d.waiter.close()
		_ = lib.deviceClose(d.handle) // only the first failure is reported
		return nil, err
	}
	d.opened.Store(true)
	d.unreported = runtime.AddCleanup(d, reportDropped, info.ID)
	return d, nil
}

func (g *gpu) openParts() error {
	if err := g.waiter.init(g.lib.completionFD(g.handle)); err != nil {
		return device.Errorf("open", g.info.ID, device.ErrUnavailable, "completion descriptor: %v", err)
	}
	return g.checked(g.clock.init(g))
}

// reportDropped runs when the garbage collector finds a device that was never closed. It frees nothing, because the
// owner is responsible for that.
func reportDropped(id string) {
	slog.Error("a CUDA device was dropped without Close; its memory stays allocated", "device", id)
}

func (g *gpu) Info() device.Info  { return g.info }
func (g *gpu) Now() time.Duration { return time.Since(g.epoch) }
func (g *gpu) Epoch() time.Time   { return g.epoch }

func (g *gpu) Err() error {
	if e := g.lost.Load(); e != nil {
		return e
	}
	return nil
}

func (g *gpu) errorf(op string, kind error, format string, args ...any) *device.Error {
	return device.Errorf(op, g.info.ID, kind, format, args...)
}

func (g *gpu) errClosed(op, what string) error {
	return g.errorf(op, device.ErrClosed, "the %s has been closed", what)
}

// hold keeps the device from being closed until release. It returns false if the device has been closed.
func (g *gpu) hold() bool {
	g.mu.RLock()
	if g.closing.Load() {
		g.mu.RUnlock()
		return false
	}
	return true
}

func (g *gpu) release() { g.mu.RUnlock() }

// beginCall holds the device for a call until release. If the device is closed or lost, it fails and holds nothing.
func (g *gpu) beginCall(op string) error {
	if !g.hold() {
		return g.errClosed(op, "device")
	}
	if err := g.Err(); err != nil {
		g.release()
		return err
	}
	return nil
}

// call makes a call and converts its error. It fails if the device is closed or lost.
func (g *gpu) call(op string, fn func() error) error {
	if err := g.beginCall(op); err != nil {
		return err
	}
	defer g.release()
	return g.checked(fn())
}
