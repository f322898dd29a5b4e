// Package host implements a device on CPU cores. Millrace uses it on machines without a GPU.
//
// The device is package software with a real-time clock. Each stream is a goroutine that runs the operations of a
// bounded queue in order. Operators run in Go on a set of worker goroutines. Kernels set device.Needs.InPlace for every
// batch.
package host

import (
	"cmp"
	"fmt"
	"runtime"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// DefaultMemory is the default for Options.MemoryLimit, in bytes. It is a limit and not a reservation, because the
// system provides memory as it is allocated.
const DefaultMemory = 4 << 30

// maxMemory is the largest permitted limit, in bytes. It is the size of a process's address space.
const maxMemory = 1 << 47

// Options configures a device.
type Options struct {
	// Cores is the maximum number of goroutines that one launch uses; 0 means GOMAXPROCS.
	Cores int

	// Kernels are the operators that Device.Kernel finds by name.
	Kernels []device.HostKernel

	// MemoryLimit limits device memory and, separately, the memory that AllocHost returns, in bytes. 0 means
	// DefaultMemory.
	MemoryLimit int64
}

// Device is a device on CPU cores. Info.Memory is the limit of device memory, and Info.Units is the number of cores of
// one launch. AllocHost returns pageable memory, because pinning has no benefit on CPU cores.
type Device struct{ *software.Device }

// Open starts a device. It fails with ErrInvalid for invalid options.
func Open(o Options) (*Device, error) {
	if o.Cores < 0 || o.MemoryLimit < 0 || o.MemoryLimit > maxMemory {
		return nil, device.Errorf("open", "host", device.ErrInvalid,
			"%d cores and a memory limit of %d bytes: neither may be negative, and the limit may be at most %d", o.Cores, o.MemoryLimit, int64(maxMemory))
	}
	o.Cores = cmp.Or(o.Cores, runtime.GOMAXPROCS(0))
	o.MemoryLimit = cmp.Or(o.MemoryLimit, DefaultMemory)
	if err := software.CheckKernels(o.Kernels); err != nil {
		return nil, device.Errorf("open", "host", device.ErrInvalid, "%v", err)
	}
	c := &clock{epoch: time.Now(), workers: startWorkers(o.Cores - 1)} // the launching stream's goroutine uses one more core
	c.dev = software.New(software.Options{
		Info: device.Info{
			Kind: "host", ID: "host", Name: fmt.Sprintf("host (%d cores)", o.Cores),
			Memory: o.MemoryLimit, Units: o.Cores,
		},
		Epoch:    c.epoch,
		HostKind: device.Pageable,
		PoolUnit: software.Granule,
		Kernels:  o.Kernels,
		// A copy would stay in the same memory chips. It would cost a core's time and make no kernel faster.
		InPlace:  func(device.Shape, device.Needs) bool { return true },
		Parallel: c.workers.run,
	}, c)
	return &Device{c.dev}, nil
}

// queueBound is the maximum number of operations in a stream's queue. A call waits while the queue is full, as on a
// GPU.
const queueBound = 1024

// gateLimit is the time after which a gate opens by itself.
const gateLimit = 10 * time.Second

// clock is the software.Clock of real time. It uses the system's monotonic clock and one goroutine per stream.
type clock struct {
	dev     *software.Device
	epoch   time.Time
	workers *workers
	streams sync.WaitGroup // goroutines of the streams
}

// Now implements software.Clock.
func (c *clock) Now() time.Duration { return time.Since(c.epoch) }

// Started implements software.Clock.
func (c *clock) Started(s *software.Stream) { c.streams.Go(func() { c.serve(s) }) }

// Admit implements software.Clock.
func (c *clock) Admit(s *software.Stream) error {
	for s.Queued() >= queueBound && s.Accepts() {
		s.AwaitChange()
	}
	return nil
}

// serve runs the operations of a stream on the stream's goroutine.
func (c *clock) serve(s *software.Stream) {
	c.dev.Mu.Lock()
	for {
		o := s.Head()
		switch {
		case o != nil:
			c.run(o)
			c.dev.Finish(o)
		case s.Accepts():
			s.AwaitChange()
		default:
			c.dev.Mu.Unlock()
			return
		}
	}
}

// run carries out an operation. The caller holds the device's lock.
func (c *clock) run(o *software.Op) {
	switch o.Kind {
	case software.Wait:
		c.block(o)
	case software.Gate:
		limit := time.AfterFunc(gateLimit, o.Gate.Open)
		defer limit.Stop()
		c.block(o)
	case software.Notify:
		c.dev.Complete(o.Token)
	case software.CopyIn, software.CopyOut, software.Fill, software.Launch:
		c.dev.Mu.Unlock()
		err := o.Do()
		c.dev.Mu.Lock()
		if err != nil {
			c.dev.Lose(o, err)
		}
	}
}

// block waits until o, a wait or a gate, no longer blocks its stream, or the device is lost.
func (c *clock) block(o *software.Op) {
	for o.Blocked() && !c.dev.Lost() {
		o.Awaits().AwaitChange()
	}
}

// Stop implements software.Clock.
func (c *clock) Stop() {
	c.streams.Wait()
	c.workers.stop()
}

// Enqueued implements software.Clock. It does nothing, because the stream's goroutine detects all changes itself.
func (c *clock) Enqueued(*software.Op) {}

// Opened implements software.Clock.
func (c *clock) Opened() {}

// Polled implements software.Clock.
func (c *clock) Polled() {}

// Lost implements software.Clock.
func (c *clock) Lost() {}

// Step implements software.Clock. It does nothing, because real time moves by itself.
func (c *clock) Step(software.Waiter) bool { return false }
