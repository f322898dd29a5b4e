package host

import (
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// queueBound is the maximum number of operations in a stream's queue. A call waits while the queue is full, as it does
// on a GPU.
const queueBound = 1024

// stream is a queue of operations and the goroutine that runs them. Operations are numbered from 1 in the order in
// which they were enqueued, which is also the order in which they run.
type stream struct {
	dev  *Device
	name string

	// done is the number of the last operation that has finished. It is written under mu, after all effects of the
	// operation.
	done atomic.Uint64

	mu       sync.Mutex
	work     sync.Cond // the goroutine waits here for operations
	progress sync.Cond // others wait here for done to change
	waiting  int       // number of waiters for progress
	queue    []op      // enqueued and not yet picked up
	queued   uint64    // number of the last operation enqueued
	closed   bool
	order    order         // the next operation comes after these; with the invariants tag only
	exited   chan struct{} // closed when the goroutine has returned

	offsets []uint32 // offsets table of the running launch; only the goroutine uses it
}

// NewStream implements device.Device.
func (d *Device) NewStream(name string) (device.Stream, error) {
	s := &stream{dev: d, name: name, exited: make(chan struct{})}
	s.work.L, s.progress.L = &s.mu, &s.mu
	if device.Invariants {
		s.order = make(order)
	}
	if err := d.Add("new stream", s); err != nil {
		return nil, err
	}
	go s.serve()
	return s, nil
}

// Name implements device.Stream.
func (s *stream) Name() string { return s.name }

func (s *stream) Leak() string { return "stream " + s.name }

// enqueue adds an operation and returns its number. It waits while the queue is full.
func (s *stream) enqueue(call string, o *op) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.usable(call); err != nil {
			return 0, err
		}
		if s.queued-s.done.Load() < queueBound {
			break
		}
		s.awaitProgress()
	}
	m := mark{stream: s, seq: s.queued + 1}
	if device.Invariants {
		s.dev.tracker.admit(m, o)
	}
	if o.kind == opRecord {
		o.event.move(m)
	}
	s.queued++
	s.queue = append(s.queue, *o)
	s.work.Signal()
	return m.seq, nil
}

// usable returns nil if the stream accepts calls. The caller holds mu.
func (s *stream) usable(call string) error {
	if err := s.dev.Usable(call); err != nil {
		return err
	}
	if s.closed {
		return s.dev.Errorf(call, device.ErrClosed, "stream %s was closed", s.name)
	}
	return nil
}

// check calls usable for callers that don't hold mu.
func (s *stream) check(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable(call)
}

// serve runs on the stream's goroutine. It takes the whole queue at once and leaves the previous slice in its place, so
// nothing is allocated once both slices are long enough.
func (s *stream) serve() {
	defer close(s.exited)
	var batch []op
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.work.Wait()
		}
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		batch, s.queue = s.queue, batch[:0]
		s.mu.Unlock()

		for i := range batch {
			if !s.dev.Lost() {
				s.run(&batch[i])
			}
			s.advance()
		}
		clear(batch) // so that finished operations keep nothing reachable
	}
}

// advance marks the running operation as done.
func (s *stream) advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done.Add(1)
	if s.waiting > 0 {
		s.progress.Broadcast()
	}
}

// current returns the mark of the running operation. Only the stream's goroutine may call it.
func (s *stream) current() mark { return mark{stream: s, seq: s.done.Load() + 1} }

// awaitProgress waits until done has changed or the device is lost. The caller holds mu and then checks its condition
// again.
func (s *stream) awaitProgress() {
	s.waiting++
	s.progress.Wait()
	s.waiting--
}

// wake makes all waiters for progress check their conditions again.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Broadcast()
}

// Passed implements software.Stream.
func (s *stream) Passed(seq uint64) bool { return s.done.Load() >= seq }

// await returns once operation seq is done or the device is lost.
func (s *stream) await(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done.Load() < seq && !s.dev.Lost() {
		s.awaitProgress()
	}
}

// Synchronize implements device.Stream. Pools release unused memory above their release thresholds.
func (s *stream) Synchronize() error {
	const call = "synchronize"
	s.mu.Lock()
	err := s.usable(call)
	last := s.queued
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.await(last)
	if s.dev.Lost() {
		return s.dev.Err()
	}
	s.dev.Space.ReleasePools()
	return nil
}

// Close implements device.Stream.
func (s *stream) Close() error {
	if again := s.stop(); again {
		return nil
	}
	s.dev.Remove(s)
	return s.dev.Err()
}

// stop waits until the queue is empty and the goroutine has returned. It reports whether the stream had been stopped
// before.
func (s *stream) stop() (again bool) {
	s.mu.Lock()
	again = s.closed
	s.closed = true
	s.work.Signal()
	s.progress.Broadcast() // also wakes calls that wait for queue space
	s.mu.Unlock()
	<-s.exited
	return again
}
