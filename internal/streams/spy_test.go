package streams_test

import (
	"context"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// spy is a device that gives a test access to the objects that a pipeline uses.
type spy struct {
	device.Device

	mu      sync.Mutex
	streams map[string]device.Stream // indexed by name

	inAlloc   func()                 // called in the pool's Alloc; may be nil
	inEnqueue func([]device.Command) // called in Enqueue; may be nil
	tokens    chan uint64            // delivered before the device's own tokens; may be nil
	twice     bool                   // whether every token is delivered twice
	again     *uint64                // the token to deliver again
}

func spyOn(d device.Device) *spy { return &spy{Device: d, streams: map[string]device.Stream{}} }

func (s *spy) NewStream(name string) (device.Stream, error) {
	made, err := s.Device.NewStream(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = made
	return made, err
}

// mappingSpy is a spy on a device with kernels that can access host memory.
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

func (s *spy) NewPool(c device.PoolOptions) (device.Pool, error) {
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

// stats returns the Stats of a pipeline and fails the test on an error.
func stats(t *testing.T, p *streams.Pipeline) streams.Stats {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checked is a device whose Check returns an error chosen by the test.
type checked struct {
	device.Device
	answer  error
	onCheck func() // called in Check; may be nil
	silent  bool   // whether Check returns only when its context is done
}

func (c *checked) Check(ctx context.Context) error {
	if c.onCheck != nil {
		c.onCheck()
	}
	if c.silent {
		<-ctx.Done()
		return device.Errorf("check", "sim-0", device.ErrNotReady, "no answer in time")
	}
	return c.answer
}

// poolless is a device without memory pools.
type poolless struct{ device.Device }

func (p poolless) NewPool(device.PoolOptions) (device.Pool, error) {
	return nil, device.Errorf("new pool", p.Info().ID, device.ErrUnavailable, "it has none")
}
