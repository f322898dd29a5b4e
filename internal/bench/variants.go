package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// This file defines the variants of a device (adr/0036). A variant wraps a device and changes only one property, which
// a row measures. The property is the kind of streams, the source of scratch, or the detection of completed batches.
// The pipeline is the same as the worker's.

// below is the device that a variant wraps.
type below struct{ device.Device }

// Map implements device.Mapper. It fails if the wrapped device doesn't implement device.Mapper.
func (d below) Map(b device.HostBuffer) (device.Memory, error) {
	m, ok := d.Device.(device.Mapper)
	if !ok {
		return device.Memory{}, device.Errorf("map", d.Info().ID, device.ErrUnavailable, "its kernels do not reach host memory")
	}
	return m.Map(b)
}

// legacyDefault returns a variant on which all streams are CUDA's legacy default stream, a single queue.
func legacyDefault(d device.Device) device.Device { return &onDefaultStreams{below: below{d}} }

// perThreadDefault returns a variant on which every stream is the default stream of the submitting thread. The
// submitting goroutine must be locked to its thread.
func perThreadDefault(d device.Device) device.Device {
	return &onDefaultStreams{below: below{d}, perThread: true}
}

// defaultStreamer is a device with CUDA's default streams.
type defaultStreamer interface {
	DefaultStream(name string, perThread bool) (device.Stream, error)
}

// onDefaultStreams is a device on which all streams are default streams. On a device that isn't a GPU, one ordinary
// stream replaces the legacy default stream, and ordinary streams replace the per-thread default streams.
type onDefaultStreams struct {
	below
	perThread bool

	mu   sync.Mutex
	only device.Stream // replacement for the legacy default stream; nil if unused
	turn sync.Mutex    // keeps the work of two batches from interleaving on the legacy default stream
}

// NewStream implements device.Device.
func (o *onDefaultStreams) NewStream(name string) (device.Stream, error) {
	if cuda, ok := o.Device.(defaultStreamer); ok {
		return cuda.DefaultStream(name, o.perThread)
	}
	if i := o.Info(); i.Kind == "cuda" {
		return nil, device.Errorf("default stream", i.ID, device.ErrUnavailable, "this build of the device has none")
	}
	if o.perThread {
		return o.Device.NewStream(name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	if o.only == nil {
		o.only, err = o.Device.NewStream(name)
	}
	return o.only, err
}

// Enqueue implements device.Device.
func (o *onDefaultStreams) Enqueue(commands []device.Command) error {
	if !o.perThread {
		o.turn.Lock()
		defer o.turn.Unlock()
	}
	return o.Device.Enqueue(commands)
}

// withPools is a device that creates its pools with newPool.
type withPools struct {
	below
	newPool func(device.PoolOptions) (device.Pool, error)
}

// NewPool implements device.Device.
func (w withPools) NewPool(c device.PoolOptions) (device.Pool, error) { return w.newPool(c) }

// releasing returns a variant with pools that release unused memory at every synchronization.
func releasing(d device.Device) device.Device {
	return withPools{below{d}, func(c device.PoolOptions) (device.Pool, error) {
		c.ReleaseThreshold = 0
		return d.NewPool(c)
	}}
}

// poolless returns a variant without pools, as on GPUs that don't support pools. A pipeline on it preallocates scratch
// of the largest size for each stream.
func poolless(d device.Device) device.Device {
	return withPools{below{d}, func(device.PoolOptions) (device.Pool, error) {
		return nil, device.Errorf("new pool", d.Info().ID, device.ErrUnavailable, "this row is about a device without pools")
	}}
}

// synchronous returns a variant whose pools are of type synchronousPool.
func synchronous(d device.Device) device.Device {
	return withPools{below{d}, func(device.PoolOptions) (device.Pool, error) { return &synchronousPool{dev: d}, nil }}
}

// synchronousPool is a pool that keeps no memory. Every allocation calls the device, and every free waits for the
// stream, as with cudaMalloc and cudaFree.
type synchronousPool struct {
	dev  device.Device
	used atomic.Int64 // bytes
}

// Alloc allocates memory from the device. The device may wait for all of its work.
func (p *synchronousPool) Alloc(_ device.Stream, bytes int) (device.Memory, error) {
	m, err := p.dev.Alloc(bytes)
	p.used.Add(int64(m.Bytes))
	return m, err
}

// Free waits for the work on s and frees m.
func (p *synchronousPool) Free(s device.Stream, m device.Memory) error {
	if err := s.Synchronize(); err != nil {
		return err
	}
	p.used.Add(-int64(m.Bytes))
	return p.dev.Free(m)
}

// Trim and Close do nothing, because there is no unused memory.
func (p *synchronousPool) Trim(int64) error { return nil }
func (p *synchronousPool) Close() error     { return nil }

// Stats returns the memory in use, but not its maximum.
func (p *synchronousPool) Stats() (device.PoolStats, error) {
	return device.PoolStats{Used: p.used.Load(), Reserved: p.used.Load()}, nil
}

// asking is a device that detects completions through the event after each batch, in the order of submission. It
// doesn't use the notifications of the wrapped device.
type asking struct {
	below
	flags device.EventFlags // additional flags of all events
	wait  func(ctx context.Context, e device.Event) error
	ends  chan end // ends of batches in the order of Notify; the capacity exceeds the number of batches in flight

	mu       sync.Mutex
	commands []device.Command // reused by Enqueue, to avoid allocation
}

// end identifies an enqueued batch and the event at its end.
type end struct {
	token uint64
	event device.Event
}

// polling returns a variant that queries the oldest batch's event without pause, which keeps a core busy.
func polling(d device.Device) device.Device {
	return newAsking(d, 0, func(ctx context.Context, e device.Event) error {
		for {
			if done, err := e.Done(); done || err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.Gosched()
		}
	})
}

// blocking returns a variant on which a thread sleeps in the driver until the oldest batch's event has completed. This
// costs a GPU one interrupt per batch.
func blocking(d device.Device) device.Device {
	return newAsking(d, device.BlockingSync, func(_ context.Context, e device.Event) error { return e.Synchronize() })
}

func newAsking(d device.Device, flags device.EventFlags, wait func(context.Context, device.Event) error) device.Device {
	return &asking{below: below{d}, flags: flags, wait: wait, ends: make(chan end, 2*maxLanes)}
}

// NewEvent implements device.Device.
func (a *asking) NewEvent(flags device.EventFlags) (device.Event, error) {
	return a.Device.NewEvent(flags | a.flags)
}

// WaitCompletion implements device.Device.
func (a *asking) WaitCompletion(ctx context.Context) (uint64, error) {
	select {
	case e := <-a.ends:
		return e.token, a.wait(ctx, e.event)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// askedStream is a stream of an asking device.
type askedStream struct {
	device.Stream
	dev  *asking
	last device.Event // event that was recorded last; guarded by asking.mu
}

// NewStream implements device.Device.
func (a *asking) NewStream(name string) (device.Stream, error) {
	s, err := a.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &askedStream{Stream: s, dev: a}, nil
}

// Enqueue implements device.Device.
func (a *asking) Enqueue(commands []device.Command) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commands = append(a.commands[:0], commands...)
	for i := range a.commands {
		c := &a.commands[i]
		s := c.Stream.(*askedStream)
		if c.Kind == device.DoRecord {
			s.last = c.Event
		}
		c.Stream = s.Stream
	}
	return a.Device.Enqueue(a.commands)
}

// Notify implements device.Stream.
func (a *askedStream) Notify(token uint64) error {
	a.dev.mu.Lock()
	defer a.dev.mu.Unlock()
	a.dev.ends <- end{token, a.last}
	return nil
}

// askedPool is a pool of the device that an asking device wraps.
type askedPool struct{ device.Pool }

// NewPool implements device.Device.
func (a *asking) NewPool(c device.PoolOptions) (device.Pool, error) {
	p, err := a.Device.NewPool(c)
	return askedPool{p}, err
}

// Alloc implements device.Pool.
func (a askedPool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	return a.Pool.Alloc(s.(*askedStream).Stream, bytes)
}

// Free implements device.Pool.
func (a askedPool) Free(s device.Stream, m device.Memory) error {
	return a.Pool.Free(s.(*askedStream).Stream, m)
}
