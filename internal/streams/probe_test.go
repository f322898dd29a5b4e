package streams_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// lying is an operator that returns incorrect results once lies is set.
type lying struct {
	device.HostKernel
	lies *atomic.Bool
}

func (l lying) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := l.HostKernel.Bind(params)
	return lyingBound{b, l.lies}, err
}

type lyingBound struct {
	device.BoundHostKernel
	lies *atomic.Bool
}

func (l lyingBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := l.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	if l.lies.Load() {
		result[len(result)-1] ^= 1
	}
	return err
}

type errorsSeen struct {
	mu    sync.Mutex
	kinds []string
}

func (e *errorsSeen) DeviceError(_, kind string) {
	e.mu.Lock()
	e.kinds = append(e.kinds, kind)
	e.mu.Unlock()
}

func probed(t *testing.T, d device.Device, o streams.Options) (*streams.Pipeline, *errorsSeen) {
	t.Helper()
	seen := &errorsSeen{}
	o.Operators, o.Observer, o.ScratchLimit = operators(t, "crc32c,minhash?k=3&hashes=5,quality"), seen, 64<<20
	p, err := streams.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the pipeline: %v", err)
		}
	})
	return p, seen
}

func TestProbePassesOnADeviceThatIsWell(t *testing.T) {
	for name, o := range map[string]streams.Options{
		"roomy":       {Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1000},
		"tight":       {Lanes: 1, BatchBytes: 1, BatchPayloads: 1},
		"few":         {Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: 2},
		"by stages":   {BatchBytes: 1 << 16, BatchPayloads: 64, Schedule: streams.Serial},
		"with copies": {Lanes: 2, BatchBytes: 1 << 16, BatchPayloads: 64, Copies: true},
	} {
		for _, kind := range []string{"host", "sim"} {
			t.Run(name+" on "+kind, func(t *testing.T) {
				d := openHost(t)
				if kind == "sim" {
					d = openSim(t, sim.Options{})
				}
				p, seen := probed(t, d, o)
				for range 3 * p.Slots() {
					if err := p.Probe(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				b, err := p.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n := b.ReadRecord().Batch; n != 1 {
					t.Errorf("the first batch of payloads has number %d, want 1, because probes have no numbers", n)
				}
				b.Release()
				if len(seen.kinds) > 0 {
					t.Errorf("the observer received errors %v from successful probes", seen.kinds)
				}
				if len(p.Completed()) > 0 {
					t.Error("the batch of a probe came back through Completed")
				}
			})
		}
	}
}

// A device that computes incorrectly, or refuses everything, is lost as soon as a probe detects it. Batches in flight
// come back with the same error.
func TestProbeThatFailsLosesTheDevice(t *testing.T) {
	lies := &atomic.Bool{}
	kernels := operator.HostKernels()
	kernels[1] = lying{kernels[1], lies}
	onHost, err := host.Open(host.Options{Cores: 1, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClean(t, onHost) })
	refusing := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LaunchFailure, Probability: 1}}})
	for name, c := range map[string]struct {
		dev  device.Device
		says string
	}{
		"wrong results":   {onHost, "operator minhash?k=3&hashes=5&seed=42 gives wrong results"},
		"refused launch":  {refusing, "launch failed"},
		"loss by a probe": {openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.DeviceLoss, Nth: 1}}}), "injected loss"},
	} {
		t.Run(name, func(t *testing.T) {
			p, seen := probed(t, c.dev, streams.Options{Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1000})
			lies.Store(true)
			err := p.Probe(t.Context())
			if !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("Probe = %v, want a lost device, and %q", err, c.says)
			}
			if got := p.Err(); !errors.Is(got, device.ErrLost) {
				t.Errorf("the pipeline's Err is %v, want a lost device", got)
			}
			select {
			case <-p.Over():
			default:
				t.Error("the pipeline is not over")
			}
			if again := p.Probe(t.Context()); !errors.Is(again, device.ErrLost) {
				t.Errorf("the next probe returned %v", again)
			}
			if err := p.Close(); err != nil { // Close waits for the observer's notification
				t.Error(err)
			}
			if !slices.Contains(seen.kinds, "lost") {
				t.Errorf("device errors %v, want one of kind lost", seen.kinds)
			}
			if name == "wrong results" && !slices.Equal(seen.kinds, []string{streams.KindProbe, "lost"}) {
				t.Errorf("device errors %v, want one of a probe and one of the loss", seen.kinds)
			}
		})
	}
}

// lenient is the operator quality without refusals. Its status bytes fill the last 256 bytes of a result of few rows.
type lenient struct{ device.HostKernel }

func (l lenient) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := l.HostKernel.Bind(params)
	return lenientBound{b}, err
}

type lenientBound struct{ device.BoundHostKernel }

func (l lenientBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := l.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	clear(result[len(result)-256:])
	return err
}

// The first probe knows which payloads a built-in operator refuses.
func TestProbeKnowsRefusalsOfBuiltInOperators(t *testing.T) {
	kernels := operator.HostKernels()
	kernels[2] = lenient{kernels[2]}
	d, err := host.Open(host.Options{Cores: 1, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClean(t, d) })
	p, _ := probed(t, d, streams.Options{Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 1000})
	if err := p.Probe(t.Context()); !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "operator quality?ngrams=false gives wrong results") {
		t.Errorf("Probe = %v, want a lost device because of quality", err)
	}
}

// A probe is inconclusive if memory is lacking or if the answer doesn't arrive. Its batch comes back later and is free
// again.
func TestProbeWithoutAVerdict(t *testing.T) {
	t.Run("no memory", func(t *testing.T) {
		p, _ := probed(t, openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.OutOfMemory, Probability: 1}}}),
			streams.Options{Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: 1000})
		if err := p.Probe(t.Context()); !errors.Is(err, device.ErrOutOfMemory) || errors.Is(err, device.ErrLost) {
			t.Errorf("Probe = %v, want out of memory", err)
		}
		if p.Err() != nil {
			t.Errorf("the pipeline is over: %v", p.Err())
		}
	})
	t.Run("no answer", func(t *testing.T) {
		d := spyOn(openHost(t))
		p, _ := probed(t, d, streams.Options{Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: 1000})
		open := d.gate(t, "lane-0")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := p.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Probe = %v, want a timeout", err)
		}
		if p.Err() != nil {
			t.Errorf("the pipeline is over: %v", p.Err())
		}
		open()
		patient, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		if err := p.Drain(patient); err != nil {
			t.Errorf("the batch of the probe did not come back: %v", err)
		}
		if err := p.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLoseGivesBackWhatIsInFlight(t *testing.T) {
	d := spyOn(openHost(t))
	p, _ := probed(t, d, streams.Options{Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: 1000})
	open := d.gate(t, "lane-0")
	defer open()
	b, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Append([]byte("payload"))
	if err := b.Submit(streams.ClosedByCount); err != nil {
		t.Fatal(err)
	}
	said := p.Lose("test", errors.New("nothing comes right"))
	if !errors.Is(said, device.ErrLost) || errors.Is(said, device.ErrKernelFault) {
		t.Errorf("Lose = %v, want a loss without ErrKernelFault", said)
	}
	b = <-p.Completed()
	if !errors.Is(b.Err(), device.ErrLost) {
		t.Errorf("the batch came back with %v, want a lost device", b.Err())
	}
	b.Release()
	if again := p.Lose("test", errors.New("something else")); again.Error() != said.Error() {
		t.Errorf("a second Lose = %v, want %v", again, said)
	}
}
