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

var copyExperiments = []experiment{{
	group: "copy",
	rows: []Entry{
		{Name: pinnedIn.name, Shows: "host to device, pinned memory, nothing beside it"},
		{Name: pinnedOut.name, Shows: "device to host, likewise"},
		{Name: pinnedBoth.name, Shows: "both ways at once: each way's rate"},
		{Name: pageableIn.name, Shows: "host to device from memory that is not pinned"},
	},
	run: runCopies,
}, {
	group: "copy",
	rows:  []Entry{{Name: "memcpy", Shows: "Go's copy from the heap to pinned memory, by 1 to 16 goroutines: what filling batches costs"}},
	run:   runMemcpy,
}}

// copySizes are the sizes that copies are measured for, in bytes, unless others are asked for.
var copySizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}

func runCopies(ctx context.Context, t *target) error {
	sizes := copySizes
	if len(t.Bytes) > 0 {
		sizes = t.Bytes
	}
	for _, n := range sizes {
		yard := t.ask(request("copy", "bytes", n))
		var field []*contender
		for _, w := range []way{pinnedIn, pinnedOut, pinnedBoth, pageableIn} {
			c := t.copies(w, n)
			c.rival = yard.answer(func(a answer) (float64, error) { return copySeconds(a, w, n) })
			field = append(field, c)
		}
		if err := t.race(ctx, field...); err != nil {
			return err
		}
		t.finish(field...)
	}
	return nil
}

// memcpyPiece is how many bytes a goroutine copies at a time: about what a payload may have.
const memcpyPiece = 64 << 10

// memcpyBytes is how much is copied from, and to, by all goroutines: more than caches hold.
const memcpyBytes = 32 << 20

func runMemcpy(ctx context.Context, t *target) error {
	m := &memcpy{t: t, from: make([]byte, memcpyBytes)}
	var field []*contender
	for _, n := range []int{1, 2, 4, 8, 16} {
		c := &contender{row: report.Row{Group: "copy", Name: "memcpy", Device: t.info.ID, BatchBytes: memcpyPiece}}
		times := 0
		c.measure = func(_ context.Context, c *contender, seed uint64) (err error) {
			if err := m.open(seed); err != nil {
				return err
			}
			if times == 0 {
				if times, err = pace(t.turn(), memcpyBytes/memcpyPiece, func(k int) (time.Duration, error) { return m.copy(n, k), nil }); err != nil {
					return err
				}
			}
			took := m.copy(n, times)
			c.row.Batches += times
			c.seconds = append(c.seconds, took.Seconds()/float64(times))
			c.add(figureGoroutines, "", float64(n))
			return m.verify()
		}
		field = append(field, c)
	}
	field[0].close = m.close
	if err := t.race(ctx, field...); err != nil {
		return err
	}
	t.finish(field...)
	return nil
}

// memcpy copies from the heap to host memory of the device.
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
