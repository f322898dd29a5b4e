package bench

import (
	"context"
	"errors"
	"time"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// sender sends one payload at a time through an idle device.
type sender interface {
	// send sends payload through the device and appends the records of all operators to dst.
	send(ctx context.Context, payload, dst []byte) ([]byte, error)
	// ready prepares the sender for the next payload.
	ready()
	close() error
}

// oneByOne measures payloads that go through an idle device one at a time. The time runs from the payload on the heap
// to its results on the heap. Every result is compared with the reference.
type oneByOne struct {
	t     *target
	ops   []operator.Operator
	bytes int // size of a payload
	open  func(context.Context) (sender, error)
	took  []float64 // seconds of each payload of the last run
}

// single returns a case that sends payloads of the given size through a pipeline.
func (t *target) single(name string, ops []operator.Operator, bytes int, s streams.Schedule) (*Case, *flow) {
	l := newDocuments(ops, bytes, false)
	l.count = 1 // the pipeline's bound on payloads; this file fills the batches
	c, f := t.flow(name, l, s)
	o := &oneByOne{t: t, ops: ops, bytes: bytes, open: func(context.Context) (sender, error) {
		p, err := f.open()
		return &pipelineSender{p: p, operators: len(ops)}, err
	}}
	c.Measure = o.measure
	return c, f
}

// singleLeast is the minimum number of payloads in a round, and in a warm-up.
const singleLeast = 64

func (o *oneByOne) measure(ctx context.Context, c *Case, seed uint64) (err error) {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var cpu time.Duration // processor time of the last run
	err = c.timed(o.t.Turn(), singleLeast, func(n int) (took time.Duration, err error) {
		before := CPUTime()
		took, err = o.run(ctx, s, seed, n)
		cpu = CPUTime() - before
		return took, err
	})
	if err != nil {
		return err
	}
	c.seconds[len(c.seconds)-1] = median(o.took) // without the time between payloads
	c.Add(figureLatency, "s", median(o.took))
	c.Add(figureLatencyP99, "s", Percentile(o.took, 0.99))
	c.Add(figureCPU, "s", cpu.Seconds()/float64(len(o.took)))
	return nil
}

// singleKinds is the number of different payloads, which are sent in rotation. Their references are computed before the
// measurement.
const singleKinds = 16

// run sends n payloads, records how long each takes in o.took, and returns how long all of them take.
func (o *oneByOne) run(ctx context.Context, s sender, seed uint64, n int) (time.Duration, error) {
	var payloads, want [singleKinds][]byte
	for i := range payloads {
		payloads[i] = make([]byte, o.bytes)
		Document(payloads[i], seed, i)
		for _, op := range o.ops {
			want[i] = op.AppendReference(want[i], payloads[i])
		}
	}
	o.took = o.took[:0]
	got := make([]byte, 0, len(want[0]))
	start := time.Now()
	for i := range n {
		began := time.Now()
		var err error
		if got, err = s.send(ctx, payloads[i%singleKinds], got[:0]); err != nil {
			return 0, err
		}
		o.took = append(o.took, time.Since(began).Seconds())
		s.ready()
		if err := equal(o.ops[0], 0, got, want[i%singleKinds]); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// pipelineSender sends payloads through a pipeline.
type pipelineSender struct {
	p         *streams.Pipeline
	operators int
	back      *streams.Batch // holds the results of the previous payload; nil if there is none
}

func (s *pipelineSender) close() error { return s.p.Close() }

func (s *pipelineSender) send(ctx context.Context, payload, dst []byte) ([]byte, error) {
	b, err := s.p.Acquire(ctx)
	if err != nil {
		return dst, err
	}
	if err := appendTo(b, payload); err != nil {
		return dst, err
	}
	if err := b.Submit(streams.ClosedByLinger); err != nil {
		return dst, err
	}
	if s.back, _, err = receive(ctx, s.p); err != nil {
		return dst, err
	}
	for i := range s.operators {
		dst = append(dst, s.back.Results(i)...)
	}
	return dst, nil
}

// ready implements sender. Releasing a batch reads its stage times. That time is not part of the latency, because the
// results are available before.
func (s *pipelineSender) ready() {
	s.back.Release()
	s.back = nil
}
