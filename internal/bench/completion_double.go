package bench

import (
	"context"
	"runtime"
	"sync"

	"millrace/internal/device"
)

// asking is a device that detects completions by querying the event after each batch, one batch after another. The
// underlying device would notify the host.
type asking struct {
	below
	flags device.EventFlags // flags of its events, in addition to the requested ones
	wait  func(ctx context.Context, e device.Event) error
	ends  chan end // in the order of Notify

	mu       sync.Mutex
	commands []device.Command // reused by Enqueue, to avoid allocation
}

// end is the end of a batch that was enqueued.
type end struct {
	token uint64
	event device.Event
}

// manyEnds is more than the number of batches that a row has in flight.
const manyEnds = 2 * maxLanes

// polling returns d with another kind of completion: it queries the oldest batch's event repeatedly, which keeps a core
// busy.
func polling(d device.Device) device.Device {
	return &asking{below: below{d}, ends: make(chan end, manyEnds), wait: func(ctx context.Context, e device.Event) error {
		for {
			if done, err := e.Done(); done || err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.Gosched()
		}
	}}
}

// blocking returns d with another kind of completion: a thread sleeps in the driver until the oldest batch's event is
// reached. This costs a GPU one interrupt per batch.
func blocking(d device.Device) device.Device {
	return &asking{below: below{d}, ends: make(chan end, manyEnds), flags: device.BlockingSync,
		wait: func(_ context.Context, e device.Event) error { return e.Synchronize() }}
}

// NewEvent implements device.Device.
func (d *asking) NewEvent(flags device.EventFlags) (device.Event, error) {
	return d.Device.NewEvent(flags | d.flags)
}

// WaitCompletion implements device.Device.
func (d *asking) WaitCompletion(ctx context.Context) (uint64, error) {
	select {
	case e := <-d.ends:
		return e.token, d.wait(ctx, e.event)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// askedStream is a stream of an asking device. It remembers the event that was recorded last.
type askedStream struct {
	device.Stream
	dev  *asking
	last device.Event // guarded by asking.mu
}

// NewStream implements device.Device.
func (d *asking) NewStream(name string) (device.Stream, error) {
	s, err := d.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &askedStream{Stream: s, dev: d}, nil
}

// Enqueue implements device.Device.
func (d *asking) Enqueue(commands []device.Command) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commands = append(d.commands[:0], commands...)
	for i := range d.commands {
		c := &d.commands[i]
		s := c.Stream.(*askedStream)
		if c.Kind == device.DoRecord {
			s.last = c.Event
		}
		c.Stream = s.Stream
	}
	return d.Device.Enqueue(d.commands)
}

// Notify implements device.Stream.
func (s *askedStream) Notify(token uint64) error {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.ends <- end{token, s.last}
	return nil
}

// askedPool is a pool of the device that an asking device wraps.
type askedPool struct{ device.Pool }

// NewPool implements device.Device.
func (d *asking) NewPool(c device.PoolConfig) (device.Pool, error) {
	p, err := d.Device.NewPool(c)
	return askedPool{p}, err
}

// Alloc implements device.Pool.
func (p askedPool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	return p.Pool.Alloc(s.(*askedStream).Stream, bytes)
}

// Free implements device.Pool.
func (p askedPool) Free(s device.Stream, m device.Memory) error {
	return p.Pool.Free(s.(*askedStream).Stream, m)
}
