package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
)

// direction is the direction of copies, or both at once.
type direction struct {
	name    string
	in, out bool
	rates   []string // the keys of the baseline program's rates
}

var (
	pinnedIn   = direction{name: "pinned-in", in: true, rates: []string{yardCopyIn}}
	pinnedOut  = direction{name: "pinned-out", out: true, rates: []string{yardCopyOut}}
	pinnedBoth = direction{name: "pinned-both", in: true, out: true, rates: []string{yardBothIn, yardBothOut}}
)

var copySuite = deviceSuite("copy", Experiment{
	Rows: []Entry{
		{Name: pinnedIn.name, Shows: "host to device, pinned memory, nothing else running"},
		{Name: pinnedOut.name, Shows: "device to host, pinned memory, nothing else running"},
		{Name: pinnedBoth.name, Shows: "both directions at once: the rate of each direction"},
	},
	each: runCopies,
})

// copySizes are the default sizes of copies, in bytes.
var copySizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}

func runCopies(ctx context.Context, t *target) error {
	for _, n := range t.Sizes(copySizes...) {
		q := t.ask(func() string { return fmt.Sprintf("copy bytes=%d", n) })
		var cases []*Case
		for _, d := range []direction{pinnedIn, pinnedOut, pinnedBoth} {
			c := t.copies(d, n)
			c.baseline = q.answer(func(a answer) (float64, error) { return a.slowest(n, d.rates) })
			cases = append(cases, c)
		}
		if err := t.Measure(ctx, cases...); err != nil {
			return err
		}
		t.Report(cases...)
	}
	return nil
}

// copyBuffers is the number of buffers that the copies of one direction use in rotation, as batches do.
const copyBuffers = 2

// copyShare is the divisor of a turn's length for copies. They need less time than other rows, because they reach a
// steady state at once.
const copyShare = 4

// copies measures copies between host and device while nothing else runs. This is the upper bound for every pipeline.
type copies struct {
	t *target
	direction
	bytes int

	holder
	streams  [2]device.Stream // in, out
	from, to [copyBuffers]device.HostBuffer
	sink     device.Memory // the target of copies in
	source   device.Memory // the source of copies out
}

// copies returns a case that makes copies of that many bytes.
func (t *target) copies(d direction, bytes int) *Case {
	k := &copies{t: t, direction: d, bytes: bytes, holder: holder{dev: t.dev}}
	return &Case{
		Row:     report.Row{Name: d.name, Device: t.info.ID, BatchBytes: bytes},
		Measure: k.measure, Close: k.close,
	}
}

// open creates streams and allocates memory, once.
func (k *copies) open() error {
	if k.streams[0] != nil {
		return nil
	}
	k.streams = [2]device.Stream{k.stream("bench in"), k.stream("bench out")}
	for i := range copyBuffers {
		k.from[i], k.to[i] = k.pinned(k.bytes), k.pinned(k.bytes)
	}
	k.sink, k.source = k.memory(k.bytes), k.memory(k.bytes)
	return k.err
}

// measure implements Case.Measure.
func (k *copies) measure(_ context.Context, c *Case, seed uint64) error {
	if err := k.open(); err != nil {
		return err
	}
	for i := range k.from {
		random(k.from[i].Bytes(), derive(seed, i), 0, ^uint64(0))
	}
	if err := k.streams[0].CopyIn(k.source, k.from[0]); err != nil {
		return err
	}
	if err := k.streams[0].Synchronize(); err != nil {
		return err
	}
	if err := c.timed(k.t.Turn()/copyShare, copyBuffers, k.burst); err != nil {
		return err
	}
	return k.verify((c.times - 1) % copyBuffers)
}

// burst makes n copies in each direction, one after the other, and waits for all of them.
func (k *copies) burst(n int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		if k.in {
			if err := k.streams[0].CopyIn(k.sink, k.from[i%copyBuffers]); err != nil {
				return 0, err
			}
		}
		if k.out {
			if err := k.streams[1].CopyOut(k.to[i%copyBuffers], k.source); err != nil {
				return 0, err
			}
		}
	}
	err := errors.Join(k.streams[0].Synchronize(), k.streams[1].Synchronize())
	return time.Since(start), err
}

// verify checks the bytes of the last copy in each direction, which used the host buffers with index last.
func (k *copies) verify(last int) error {
	if k.out && !bytes.Equal(k.to[last].Bytes(), k.from[0].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied out differ from those on the device", k.bytes)}
	}
	if !k.in {
		return nil
	}
	if err := k.streams[0].CopyOut(k.to[0], k.sink); err != nil {
		return err
	}
	if err := k.streams[0].Synchronize(); err != nil {
		return err
	}
	if !bytes.Equal(k.to[0].Bytes(), k.from[last].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied in and out again differ", k.bytes)}
	}
	return nil
}
