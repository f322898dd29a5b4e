package bench

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// These are the payload sizes of the suites that send one payload at a time, in bytes.
const (
	completionBytes = 64 // an almost empty batch
	latencyBytes    = 1 << 10
)

// baselineRepeats is the number of repetitions of a quick operation in the baseline program.
const baselineRepeats = 1000

var completionSuite = deviceSuite("completion", Experiment{
	Rows: []Entry{
		{Name: "polling", Shows: "an almost empty batch; an event is polled without pause until the batch ends"},
		{Name: "blocking-event", Shows: "the same, waiting for an event that yields the processor"},
		{Name: "napping", Shows: "the same by adaptive polling, as the worker runs on a GPU unless a batch is small and alone"},
		{Name: "host-function", Shows: "the same by a host function that wakes a waiting goroutine, as the worker runs on a CPU"},
	},
	sizes: func(*Session) []int { return []int{completionBytes} },
	cases: completionCases,
})

func completionCases(_ context.Context, s *Session, size int) ([]*Case, error) {
	row := func(name, way string, completion streams.Completion, variant func(device.Device) device.Device) *Case {
		schedule := streams.Overlapped
		schedule.Completion = completion
		c, r := single(s, name, Parse("crc32c"), size, schedule)
		r.variant = variant
		r.o.Spin = 0 // otherwise a lone batch would be polled first in every row
		if way != "" {
			c.baseline = &baseline{
				request: func() string { return fmt.Sprintf("completion way=%s repeats=%d", way, baselineRepeats) },
				batch:   func(a answer) float64 { return a.Median }, unlike: true, // the baseline program copies nothing
			}
		}
		return c
	}
	return []*Case{
		row("polling", "poll", streams.ByNotify, polling), row("blocking-event", "blocking", streams.ByNotify, blocking),
		row("napping", "", streams.ByAdaptivePolling, nil), row("host-function", "hostfunc", streams.ByNotify, nil),
	}, nil
}

var latencySuite = deviceSuite("latency", Experiment{
	Rows: []Entry{
		{Name: "streams", Shows: "one payload of 1 KiB on an idle device, from Append to its results, as the worker runs"},
		{Name: "persistent", Shows: "the same through a persistent kernel that takes payloads from a mailbox: no launch"},
	},
	sizes: func(*Session) []int { return []int{latencyBytes} },
	cases: latencyCases,
})

func latencyCases(_ context.Context, s *Session, size int) (cases []*Case, _ error) {
	for _, list := range []string{"crc32c", "crc32c," + minhashSpec} {
		ops := Parse(list)
		pipeline, _ := single(s, "streams", ops, size, workerSchedule(s))
		pipeline.baseline = &baseline{
			request: func() string {
				return fmt.Sprintf("launch kernels=%d bytes=%d repeats=%d", len(ops), size, baselineRepeats)
			},
			batch: func(a answer) float64 { return a.Calls.Total.Median },
		}
		sender := &persistentSender{dev: s.dev, ops: ops, bytes: size}
		persistent := &Case{
			Row:     report.Row{Name: "persistent", Device: s.info.ID, BatchBytes: size, Operator: Specs(ops)},
			Measure: repeat(&singleWork{sender: sender, ops: ops, bytes: size}, s.Turn()),
		}
		cases = append(cases, pipeline, persistent)
	}
	return cases, nil
}

// single returns a case that sends payloads of the given size through a pipeline, one at a time. The caller may change
// the returned rig.
func single(s *Session, name string, ops []operator.Operator, bytes int, schedule streams.Schedule) (*Case, *rig) {
	r := newRig(s, &load{operators: ops, size: bytes, count: 1}, schedule)
	r.o.Copies = false // the worker doesn't copy either, even on a CPU
	w := &singleWork{sender: &pipelineSender{rig: r}, ops: ops, bytes: bytes}
	return &Case{Row: r.row(name), Measure: repeat(w, s.Turn()), ordinal: r.info.Ordinal}, r
}

// sender sends one payload at a time through an idle device.
type sender interface {
	open() error
	// send sends payload through the device and appends the records of all operators to dst.
	send(ctx context.Context, payload, dst []byte) ([]byte, error)
	// prepare prepares the sender for the next payload.
	prepare()
	// close frees the resources of open, even if open has failed.
	close() error
}

const (
	singleMin   = 64 // minimum number of payloads in a round or a warm-up
	singleKinds = 16 // number of different payloads; they are sent in rotation
)

// singleWork sends payloads through an idle device, one at a time. The measured time runs from the payload on the heap
// to its results on the heap. Every result is compared with the reference.
type singleWork struct {
	sender
	ops   []operator.Operator
	bytes int // size of a payload

	payloads, want [singleKinds][]byte // payloads and their references, computed before the measurement
	took           []float64           // seconds of each payload of the last run
	cpu            time.Duration       // processor time of the last run
}

// open implements work.
func (s *singleWork) open(_ context.Context, seed uint64) error {
	for i := range s.payloads {
		s.payloads[i], s.want[i] = make([]byte, s.bytes), nil
		Document(s.payloads[i], seed, i)
		for _, op := range s.ops {
			s.want[i] = op.AppendReference(s.want[i], s.payloads[i])
		}
	}
	return s.sender.open()
}

// minTimes implements work.
func (s *singleWork) minTimes() int { return singleMin }

// run implements work.
func (s *singleWork) run(ctx context.Context, n int) (took time.Duration, err error) {
	s.took = s.took[:0]
	got := make([]byte, 0, len(s.want[0]))
	cpu, start := CPUTime(), time.Now()
	for i := range n {
		began := time.Now()
		if got, err = s.send(ctx, s.payloads[i%singleKinds], got[:0]); err != nil {
			return 0, err
		}
		s.took = append(s.took, time.Since(began).Seconds())
		s.prepare()
		if err := equal(s.ops[0], 0, got, s.want[i%singleKinds]); err != nil {
			return 0, err
		}
	}
	s.cpu = CPUTime() - cpu
	return time.Since(start), nil
}

// finish implements work. The seconds per batch don't include the time between payloads.
func (s *singleWork) finish(c *Case) error {
	c.seconds[len(c.seconds)-1] = median(s.took)
	c.add(latency, median(s.took))
	c.add(latencyP99, Percentile(s.took, 0.99))
	c.add(cpuTime, s.cpu.Seconds()/float64(len(s.took)))
	return nil
}

// pipelineSender sends payloads through a pipeline.
type pipelineSender struct {
	*rig
	back *streams.Batch // batch with the results of the previous payload; may be nil
}

// send implements sender.
func (p *pipelineSender) send(ctx context.Context, payload, dst []byte) ([]byte, error) {
	b, err := p.p.Acquire(ctx)
	if err != nil {
		return dst, err
	}
	if err := appendTo(b, payload); err != nil {
		return dst, err
	}
	if err := b.Submit(streams.ClosedByLinger); err != nil {
		return dst, err
	}
	if p.back, _, err = receive(ctx, p.p); err != nil {
		return dst, err
	}
	for i := range p.o.Operators {
		dst = append(dst, p.back.Results(i)...)
	}
	return dst, nil
}

// prepare implements sender. It releases the batch, which reads the stage times. The latency excludes that work, because
// the results are available earlier.
func (p *pipelineSender) prepare() {
	p.back.Release()
	p.back = nil
}
