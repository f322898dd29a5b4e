package streams_test

import (
	"context"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// spy is a device that lets a test reach what a pipeline takes from it.
type spy struct {
	device.Device

	mu      sync.Mutex
	streams map[string]device.Stream // by name

	inAlloc   func()                 // is called in the pool's Alloc; nil for nothing
	inEnqueue func([]device.Command) // is called in Enqueue; nil for nothing
	tokens    chan uint64            // come before the device's own; nil for none
	twice     bool                   // every token comes twice
	again     *uint64                // the token to come again
}

func spyOn(d device.Device) *spy { return &spy{Device: d, streams: map[string]device.Stream{}} }

func (s *spy) NewStream(name string) (device.Stream, error) {
	made, err := s.Device.NewStream(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = made
	return made, err
}

// mappingSpy is a spy on a device whose kernels reach host memory.
type mappingSpy struct {
	*spy
	device.Mapper
}

func (s *spy) Enqueue(commands []device.Command) error {
	if s.inEnqueue != nil {
		s.inEnqueue(commands)
	}
	return s.Device.Enqueue(commands)
}

func (s *spy) NewPool(c device.PoolConfig) (device.Pool, error) {
	pool, err := s.Device.NewPool(c)
	return &spiedPool{pool, s}, err
}

type spiedPool struct {
	device.Pool
	spy *spy
}

func (p *spiedPool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	if p.spy.inAlloc != nil {
		p.spy.inAlloc()
	}
	return p.Pool.Alloc(s, bytes)
}

func (s *spy) WaitCompletion(ctx context.Context) (uint64, error) {
	select {
	case token := <-s.tokens:
		return token, nil
	default:
	}
	if s.again != nil {
		token := *s.again
		s.again = nil
		return token, nil
	}
	token, err := s.Device.WaitCompletion(ctx)
	if err == nil && s.twice {
		s.again = &token
	}
	return token, err
}

// gate stalls a stream of the pipeline until open is called.
func (s *spy) gate(t *testing.T, stream string) (open func()) {
	t.Helper()
	open, err := s.Device.(device.Gater).Gate(s.streams[stream])
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(open)
}

// stats reads a pipeline that is well.
func stats(t *testing.T, p *streams.Pipeline) streams.Stats {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checked is a device whose answer to Check a test chooses.
type checked struct {
	device.Device
	answer  error
	onCheck func()        // is called in Check; nil for nothing
	never   chan struct{} // Check returns when it is closed; nil for at once
}

func (c *checked) Check(context.Context) error {
	if c.onCheck != nil {
		c.onCheck()
	}
	if c.never != nil {
		<-c.never
	}
	return c.answer
}
