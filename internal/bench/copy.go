package bench

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
)

var copySuite = deviceSuite("copy", Experiment{
	Rows: []Entry{
		{Name: pinnedIn.name, Shows: "host to device, pinned memory, nothing else running"},
		{Name: pinnedOut.name, Shows: "device to host, pinned memory, nothing else running"},
		{Name: pinnedBoth.name, Shows: "both directions at once: the rate of each direction"},
		{Name: pageableIn.name, Shows: "host to device from memory that is not pinned"},
	},
	each: runCopies,
}, Experiment{
	Rows: []Entry{{Name: "memcpy", Shows: "Go's copy from the heap to pinned memory, by 1 to 16 goroutines: what filling batches costs"}},
	each: runMemcpy,
})

// copySizes are the sizes of the copies, in bytes, unless others are asked for.
var copySizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}

func runCopies(ctx context.Context, t *target) error {
	for _, n := range t.Sizes(copySizes...) {
		q := t.ask(request("copy", "bytes", n))
		var cases []*Case
		for _, d := range []direction{pinnedIn, pinnedOut, pinnedBoth, pageableIn} {
			c := t.copies(d, n)
			c.baseline = q.answer(func(a answer) (float64, error) { return copySeconds(a, d, n) })
			cases = append(cases, c)
		}
		if err := t.Measure(ctx, cases...); err != nil {
			return err
		}
		t.Report(cases...)
	}
	return nil
}

// memcpyPiece is how many bytes a goroutine copies at a time, about the size of a large payload.
const memcpyPiece = 64 << 10

// memcpyBytes is the size of the memory that all goroutines copy from, and of the memory they copy to.
const memcpyBytes = 32 << 20

func runMemcpy(ctx context.Context, t *target) error {
	m := &memcpy{t: t, from: make([]byte, memcpyBytes)}
	var cases []*Case
	for _, n := range []int{1, 2, 4, 8, 16} {
		c := &Case{Row: report.Row{Name: "memcpy", Device: t.info.ID, BatchBytes: memcpyPiece}}
		c.Measure = func(_ context.Context, c *Case, seed uint64) error {
			if err := m.open(seed); err != nil {
				return err
			}
			run := func(k int) (time.Duration, error) { return m.copy(n, k), nil }
			if err := c.timed(t.Turn(), memcpyBytes/memcpyPiece, run); err != nil {
				return err
			}
			c.Add(figureGoroutines, "", float64(n))
			return m.verify()
		}
		cases = append(cases, c)
	}
	cases[0].Close = m.close
	if err := t.Measure(ctx, cases...); err != nil {
		return err
	}
	t.Report(cases...)
	return nil
}

// memcpy copies from the heap to the device's host memory.
type memcpy struct {
	t    *target
	from []byte
	to   device.HostBuffer
}

func (m *memcpy) open(seed uint64) (err error) {
	random(m.from, seed, 0, ^uint64(0))
	if m.to.Len() == 0 {
		m.to, err = m.t.dev.AllocHost(memcpyBytes)
	}
	return err
}

func (m *memcpy) close() error {
	if m.to.Len() == 0 {
		return nil
	}
	return m.t.dev.FreeHost(m.to)
}

// copy copies that many pieces with that many goroutines.
func (m *memcpy) copy(goroutines, pieces int) time.Duration {
	to := m.to.Bytes()
	var next atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for range goroutines {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(pieces); i = next.Add(1) - 1 {
				at := int(i) * memcpyPiece % memcpyBytes
				copy(to[at:at+memcpyPiece], m.from[at:at+memcpyPiece])
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

func (m *memcpy) verify() error {
	if !bytes.Equal(m.to.Bytes(), m.from) {
		return errWrong{errors.New("WRONG RESULT: host memory differs from what was copied there")}
	}
	return nil
}
