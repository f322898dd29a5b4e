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

// direction selects copies in, copies out, or both at once.
type direction struct {
	name    string
	in, out bool
	rate    func(answer) float64 // the baseline program's rate in bytes per second, of the slower direction
}

var (
	pinnedIn   = direction{name: "pinned-in", in: true, rate: func(a answer) float64 { return a.In }}
	pinnedOut  = direction{name: "pinned-out", out: true, rate: func(a answer) float64 { return a.Out }}
	pinnedBoth = direction{name: "pinned-both", in: true, out: true, rate: func(a answer) float64 { return min(a.BothIn, a.BothOut) }}
)

var copySuite = deviceSuite("copy", Experiment{
	Rows: []Entry{
		{Name: pinnedIn.name, Shows: "host to device, pinned memory, nothing else running"},
		{Name: pinnedOut.name, Shows: "device to host, pinned memory, nothing else running"},
		{Name: pinnedBoth.name, Shows: "both directions at once: the rate of each direction"},
	},
	sizes: func(s *Session) []int { return s.Sizes(64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20) },
	cases: func(_ context.Context, s *Session, size int) ([]*Case, error) {
		var cases []*Case
		for _, d := range []direction{pinnedIn, pinnedOut, pinnedBoth} {
			c := copies(s, d, size)
			request := func() string { return fmt.Sprintf("copy bytes=%d", size) }
			c.baseline = &baseline{request: request, batch: func(a answer) float64 { return float64(size) / d.rate(a) }}
			cases = append(cases, c)
		}
		return cases, nil
	},
})

// copyShare is the divisor for the duration of a round of copies. Copies need less time than other rows, because they
// reach a steady state at once.
const copyShare = 4

// copies returns a case that copies the given number of bytes while nothing else runs. Its rate is the upper bound for
// any pipeline.
func copies(s *Session, d direction, bytes int) *Case {
	w := &copyWork{direction: d, bytes: bytes, holder: holder{dev: s.dev}}
	return &Case{Row: report.Row{Name: d.name, Device: s.info.ID, BatchBytes: bytes}, Measure: repeat(w, s.Turn()/copyShare), ordinal: s.info.Ordinal}
}

// copyBuffers is the number of buffers that the copies of one direction use in rotation, like batches.
const copyBuffers = 2

// copyWork makes copies between host and device.
type copyWork struct {
	holder
	direction
	bytes    int
	ins      device.Stream
	outs     device.Stream
	from, to [copyBuffers]device.HostBuffer
	sink     device.Memory // the target of copies in
	source   device.Memory // the source of copies out
	last     int           // index of the host buffers of the last copies
}

// open implements work.
func (c *copyWork) open(_ context.Context, seed uint64) error {
	c.ins, c.outs = c.stream("bench in"), c.stream("bench out")
	for i := range copyBuffers {
		c.from[i], c.to[i] = c.pinnedBuffer(c.bytes), c.pinnedBuffer(c.bytes)
	}
	c.sink, c.source = c.memory(c.bytes), c.memory(c.bytes)
	if c.err != nil {
		return c.err
	}
	for i := range c.from {
		random(c.from[i].Bytes(), derive(seed, i), ^uint64(0))
	}
	if err := c.ins.CopyIn(c.source, c.from[0]); err != nil {
		return err
	}
	return c.ins.Synchronize()
}

// minTimes implements work.
func (c *copyWork) minTimes() int { return copyBuffers }

// run implements work. It enqueues n copies in each direction and waits for all of them.
func (c *copyWork) run(_ context.Context, n int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		c.last = i % copyBuffers
		if c.in {
			if err := c.ins.CopyIn(c.sink, c.from[c.last]); err != nil {
				return 0, err
			}
		}
		if c.out {
			if err := c.outs.CopyOut(c.to[c.last], c.source); err != nil {
				return 0, err
			}
		}
	}
	err := errors.Join(c.ins.Synchronize(), c.outs.Synchronize())
	return time.Since(start), err
}

// finish implements work. It checks the bytes of the last copy in each direction.
func (c *copyWork) finish(*Case) error {
	if c.out && !bytes.Equal(c.to[c.last].Bytes(), c.from[0].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied out differ from the bytes on the device", c.bytes)}
	}
	if !c.in {
		return nil
	}
	if err := c.outs.CopyOut(c.to[0], c.sink); err != nil {
		return err
	}
	if err := c.outs.Synchronize(); err != nil {
		return err
	}
	if !bytes.Equal(c.to[0].Bytes(), c.from[c.last].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied in and out again differ", c.bytes)}
	}
	return nil
}

// holder creates streams and allocates memory on a device. close frees all of them. After a failure, err is set and
// further calls return zero values.
type holder struct {
	dev  device.Device
	err  error
	undo []func() error // release functions, in the order of the calls
}

// hold returns the result of take. h.close passes that result to giveBack.
func hold[T any](h *holder, take func() (T, error), giveBack func(T) error) (taken T) {
	if h.err != nil {
		return taken
	}
	if taken, h.err = take(); h.err == nil {
		h.undo = append(h.undo, func() error { return giveBack(taken) })
	}
	return taken
}

func (h *holder) stream(name string) device.Stream {
	return hold(h, func() (device.Stream, error) { return h.dev.NewStream(name) }, device.Stream.Close)
}

func (h *holder) pinnedBuffer(bytes int) device.HostBuffer {
	return hold(h, func() (device.HostBuffer, error) { return h.dev.AllocHost(bytes) }, h.dev.FreeHost)
}

func (h *holder) memory(bytes int) device.Memory {
	return hold(h, func() (device.Memory, error) { return h.dev.Alloc(bytes) }, h.dev.Free)
}

// close frees everything in reverse order. The holder can be used again.
func (h *holder) close() error {
	var errs []error
	for i := len(h.undo) - 1; i >= 0; i-- {
		errs = append(errs, h.undo[i]())
	}
	h.undo, h.err = nil, nil
	return errors.Join(errs...)
}
