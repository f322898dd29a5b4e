package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"millrace/internal/device/software"
)

// Cost is the time that one operation of a kind takes: Latency, plus its bytes divided by BytesPerSecond.
type Cost struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0: the size doesn't matter
}

// Model sets how long operations take. A launch has the bytes of its rows. With the zero Model all operations are
// instantaneous.
type Model struct {
	CopyIn  Cost
	CopyOut Cost
	Fill    Cost            // runs on the compute engine, as on a GPU
	Kernel  Cost            // a launch of a kernel that is not in Kernels
	Kernels map[string]Cost // by operator name

	// Jitter extends each operation by a fraction of its time, drawn uniformly from [0, Jitter) using the seed and the
	// operation's place in the sequence of calls. 0 means none; at most 1.
	Jitter float64

	// ComputeSlots is the number of launches and fills that run concurrently, each at full speed. 0 means 1.
	ComputeSlots int
}

// Units returns the model of textbook plans: a copy in, a launch and a copy out take unit each, whatever their size,
// and a fill takes no time.
func Units(unit time.Duration) Model {
	stage := Cost{Latency: unit}
	return Model{CopyIn: stage, CopyOut: stage, Kernel: stage}
}

// H100 returns a model of one H100 80GB on PCIe gen 5. The copies fit the rates measured there with pinned memory: 18
// GB/s at 64 KiB, 49 GB/s at 1 MiB and 55 GB/s from 16 MiB. minhash has the measured rate of a plain kernel (k=24, 128
// permutations, 2 KiB documents). Kernels that are not listed are assumed to keep up with the copies. A fill runs at
// the memory's rate of 3.35 TB/s (NVIDIA's data sheet, SXM).
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

// check returns all problems of the model, joined.
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
	return errors.Join(problems...)
}

// duration returns how long o takes. Jitter depends on o's sequence number, not on the order in which operations happen
// to run, so a change in one stream doesn't change the random numbers of others.
func (m Model) duration(o *software.Op, seed uint64) time.Duration {
	var c Cost
	switch o.Kind {
	case CopyIn:
		c = m.CopyIn
	case CopyOut:
		c = m.CopyOut
	case Fill:
		c = m.Fill
	case Launch:
		c = m.Kernel
		if named, ok := m.Kernels[o.Kernel.Name()]; ok {
			c = named
		}
	}
	t := float64(c.Latency)
	if c.BytesPerSecond > 0 {
		t += float64(o.Bytes) / c.BytesPerSecond * float64(time.Second)
	}
	t *= 1 + m.Jitter*draw(seed, 0, o.Seq)
	return time.Duration(math.Round(min(t, float64(longest))))
}

// longest is the maximum duration of one operation, so that sums of durations don't overflow.
const longest = 24 * time.Hour

// draw returns a number in [0, 1) that depends only on its arguments: one output of splitmix64 (Steele, Lea, Flood:
// Fast splittable pseudorandom number generators, 2014). purpose separates the sequences for different uses, and n is
// the index in one sequence.
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
