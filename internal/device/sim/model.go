package sim

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Cost is how long one operation of a kind takes: Latency, and the time for its bytes at BytesPerSecond.
type Cost struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0: size costs nothing
}

// Model says how long operations take. The bytes of a launch are those of its rows. The zero Model makes
// everything instantaneous.
type Model struct {
	CopyIn  Cost
	CopyOut Cost
	Fill    Cost            // runs on the compute engine, as on a GPU
	Kernel  Cost            // a launch of a kernel that Kernels does not name
	Kernels map[string]Cost // by operator name

	// Jitter stretches each operation by a share drawn evenly from [0, Jitter), from the seed and the
	// operation's place in the sequence of calls. 0 means none; at most 1.
	Jitter float64

	// ComputeSlots is how many launches and fills run at once, each as fast as if it ran alone. 0 means 1.
	ComputeSlots int

	// CopyShare is the share of its speed that a copy keeps while a copy the other way runs, ComputeShare that
	// of a launch or fill while a copy runs. The speed changes at the instant at which the other starts or ends.
	// 0 means 1: what runs at once does not slow each other.
	CopyShare    float64
	ComputeShare float64

	// Dispatch is the time that an engine hears late of a copy, fill or launch: after it was enqueued, after work on
	// another engine ended that it follows in its stream, and after an event was reached that its stream waited for.
	// Work that follows work of its own engine comes at once. It keeps the stream and no engine, so other streams'
	// work hides it.
	Dispatch time.Duration

	// Completion is the time from when a stream gets to a Notify until WaitCompletion can return its token. The
	// stream goes on meanwhile.
	Completion time.Duration

	// Synchronize is the host's time to wake up in Stream.Synchronize, after the work that it waits for.
	Synchronize time.Duration
}

// Units is the model of textbook plans: a copy in, a launch and a copy out take unit each, whatever
// their size, and a fill takes no time.
func Units(unit time.Duration) Model {
	stage := Cost{Latency: unit}
	return Model{CopyIn: stage, CopyOut: stage, Kernel: stage}
}

// H100 is a model of one H100 80GB on PCIe gen 5. The copies fit the rates measured there with pinned
// memory: 18 GB/s at 64 KiB, 49 GB/s at 1 MiB and 55 GB/s from 16 MiB. minhash is the measured rate of a
// plain kernel (k=24, 128 permutations, 2 KiB documents). A kernel not named is assumed to keep up with
// the copies; a fill runs at the memory's rate of 3.35 TB/s (NVIDIA's data sheet, SXM).
func H100() Model {
	const launch = 2800 * time.Nanosecond
	bus := Cost{Latency: 2400 * time.Nanosecond, BytesPerSecond: 55e9}
	return Model{
		CopyIn:  bus,
		CopyOut: bus,
		Fill:    Cost{Latency: launch, BytesPerSecond: 3.35e12},
		Kernel:  Cost{Latency: launch, BytesPerSecond: 55e9},
		Kernels: map[string]Cost{"minhash": {Latency: launch, BytesPerSecond: 7.4e9}},
	}
}

// check returns every problem of the model, joined.
func (m Model) check() error {
	var problems []error
	cost := func(name string, c Cost) {
		if c.Latency < 0 || c.BytesPerSecond < 0 || math.IsNaN(c.BytesPerSecond) || math.IsInf(c.BytesPerSecond, 0) {
			problems = append(problems, fmt.Errorf("cost of %s: latency and rate must be finite and not negative", name))
		}
	}
	cost("copy in", m.CopyIn)
	cost("copy out", m.CopyOut)
	cost("fill", m.Fill)
	cost("kernels", m.Kernel)
	for name, c := range m.Kernels {
		cost("kernel "+name, c)
	}
	if !(m.Jitter >= 0 && m.Jitter <= 1) {
		problems = append(problems, fmt.Errorf("jitter %v: must be from 0 to 1", m.Jitter))
	}
	if m.ComputeSlots < 0 || m.ComputeSlots > maxComputeSlots {
		problems = append(problems, fmt.Errorf("%d compute slots: must be from 0 to %d", m.ComputeSlots, maxComputeSlots))
	}
	problems = append(problems, m.checkContention(), m.checkLatencies())
	return errors.Join(problems...)
}

func (m Model) checkContention() error {
	if !isShare(m.CopyShare) || !isShare(m.ComputeShare) {
		return fmt.Errorf("copy share %v and compute share %v: must be from %v to 1, or 0 for 1", m.CopyShare, m.ComputeShare, leastShare)
	}
	return nil
}

func (m Model) checkLatencies() error {
	for _, l := range []time.Duration{m.Dispatch, m.Completion, m.Synchronize} {
		if l < 0 || l > longest {
			return fmt.Errorf("dispatch %v, completion %v, synchronize %v: must be from 0 to %v", m.Dispatch, m.Completion, m.Synchronize, longest)
		}
	}
	return nil
}

// leastShare keeps what is slowed down from standing still.
const leastShare = 0.01

func isShare(s float64) bool { return s == 0 || s >= leastShare && s <= 1 }

// duration is how long o takes. Jitter depends on o's sequence number, not on the order in which
// operations happen to run, so that a change in one stream leaves the others' draws alone.
func (m Model) duration(o *op, seed uint64) time.Duration {
	var c Cost
	switch o.kind {
	case CopyIn:
		c = m.CopyIn
	case CopyOut:
		c = m.CopyOut
	case Fill:
		c = m.Fill
	case Launch:
		c = m.Kernel
		if named, ok := m.Kernels[o.name]; ok {
			c = named
		}
	}
	t := float64(c.Latency)
	if c.BytesPerSecond > 0 {
		t += float64(o.bytes) / c.BytesPerSecond * float64(time.Second)
	}
	t *= 1 + m.Jitter*draw(seed, 0, o.seq)
	return time.Duration(math.Round(min(t, float64(longest))))
}

// longest bounds one operation, so that sums of durations stay far from overflow.
const longest = 24 * time.Hour

// draw gives a number in [0, 1) that depends on its arguments alone: one output of splitmix64 (Steele,
// Lea, Flood: Fast splittable pseudorandom number generators, 2014). purpose keeps the draws for different
// ends apart, n those for one end.
func draw(seed, purpose, n uint64) float64 {
	const golden = 0x9e3779b97f4a7c15
	mix := func(z uint64) uint64 {
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	z := mix(mix(seed+golden*(purpose+1)) + golden*n)
	return float64(z>>11) / (1 << 53)
}
