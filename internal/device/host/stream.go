package host

import (
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// queueBound is how many operations a stream holds at once. A call that finds the queue full waits for room,
// as a GPU's does.
const queueBound = 1024

// stream is a queue of operations and the goroutine that works it. Operations are numbered from 1 in the
// order in which they were enqueued, which is the order in which they run.
type stream struct {
	dev  *Device
	name string

	// done is the number of the last operation that has finished. It is written under mu, after
	// everything the operation did.
	done atomic.Uint64

	mu       sync.Mutex
	work     sync.Cond // the goroutine waits here for operations
	progress sync.Cond // others wait here for done to move
	waiting  int       // how many wait for progress
	queue    []op      // enqueued and not yet picked up
	queued   uint64    // number of the last operation enqueued
	closed   bool
	order    order         // what the next operation comes after, under the invariants tag
	exited   chan struct{} // closed when the goroutine has returned

	offsets []uint32 // the goroutine's: the offsets table of the launch that runs
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

// usable is nil while the stream takes calls. The caller holds mu.
func (s *stream) usable(call string) error {
	if err := s.dev.Usable(call); err != nil {
		return err
	}
	if s.closed {
		return s.dev.Errorf(call, device.ErrClosed, "stream %s was closed", s.name)
	}
	return nil
}

// check is usable for callers that do not hold mu.
func (s *stream) check(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable(call)
}

// serve is the stream's goroutine. It takes whole queues at a time and hands their memory back, so that
// nothing is allocated once both are long enough.
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
		clear(batch) // so that nothing stays reachable through operations of the past
	}
}

// advance finishes the running operation.
func (s *stream) advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done.Add(1)
	if s.waiting > 0 {
		s.progress.Broadcast()
	}
}

// current is the number of the operation that runs. Only the stream's goroutine may ask.
func (s *stream) current() mark { return mark{stream: s, seq: s.done.Load() + 1} }

// awaitProgress waits until done has moved, or the device is lost. The caller holds mu, and looks again at
// what it waits for.
func (s *stream) awaitProgress() {
	s.waiting++
	s.progress.Wait()
	s.waiting--
}

// wake makes everyone who waits for progress look again.
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

// Synchronize implements device.Stream. Pools give back what they hold above their release threshold.
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

// stop lets the queue run dry and waits for the goroutine to return. It says whether someone else had
// stopped the stream before.
func (s *stream) stop() (again bool) {
	s.mu.Lock()
	again = s.closed
	s.closed = true
	s.work.Signal()
	s.progress.Broadcast() // a call that waits for room must hear of it
	s.mu.Unlock()
	<-s.exited
	return again
}
