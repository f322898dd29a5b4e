package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"millrace/internal/bench"
)

// memoryEntries are the rows that show how much memory the process uses.
var memoryEntries = []bench.Entry{
	{Name: "memory", Shows: "memory of the process, and of the batches, with Millrace at full speed on payloads of 64 KiB"},
	{Name: "memory-null", Shows: "the same with null-async: what the client uses by itself, and a server in this process"},
}

const (
	memoryBytes = 64 << 10 // size of a payload

	// memoryLeast is the minimum number of payloads of a round: more than the worker ever holds.
	memoryLeast = 1536
)

// runMemory measures the memory of Millrace and of the worker that computes nothing.
func (b *Bench) runMemory(ctx context.Context, session *bench.Session) error {
	s, err := b.open(ctx, session)
	if err != nil {
		return err
	}
	ours := s.connections.sharedDelivery(session, bench.Parse(operatorLists[0])).named(memoryEntries[0].Name)
	null := nullAsync.named(memoryEntries[1].Name)
	all := []*bench.Case{s.memory(session, ours, b.memoryLeast), s.memory(session, null, b.memoryLeast)}
	if err := session.Measure(ctx, all...); err != nil {
		return err
	}
	session.Report(all...)
	return nil
}

// memory returns a case that measures the memory of the process while a kind of worker runs.
func (s *server) memory(session *bench.Session, k kind, least int) *bench.Case {
	measure := func(ctx context.Context, c *bench.Case, seed uint64) error {
		n, err := s.pace(ctx, session, c, k, least, unframed{^seed, memoryBytes})
		if err != nil {
			return err
		}
		w := &watched{}
		watching := k
		watching.make = func(func(time.Duration)) worker { w.worker = k.make(nil); return w }
		if _, err := s.round(ctx, watching, load{n, unframed{seed, memoryBytes}}); err != nil {
			return err
		}
		c.Add(figureBefore, "B", float64(w.before))
		c.Add(figureResident, "B", float64(w.most))
		if w.buffers > 0 {
			c.Add(figureBuffers, "B", float64(w.buffers))
		}
		return nil
	}
	return &bench.Case{Row: row(session, k, memoryBytes), Measure: measure}
}

// watched is a worker that samples the memory while it runs.
type watched struct {
	worker
	before, most int64 // resident bytes
	buffers      int64 // size of the pipelines' batches on the host
}

func (w *watched) ready(ctx context.Context, s *server, l load) error {
	debug.FreeOSMemory() // release the memory that filling used
	var err error
	if w.before, err = resident(); err != nil {
		return err
	}
	return w.worker.ready(ctx, s, l)
}

// sampleEvery is the pause between two samples of the memory.
const sampleEvery = 2 * time.Millisecond

func (w *watched) run(ctx context.Context, l load) error {
	sampling, stop := context.WithCancel(ctx)
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		for failed == nil {
			var now int64
			now, failed = resident()
			w.most = max(w.most, now)
			if pause(sampling, sampleEvery) != nil {
				return
			}
		}
	})
	err := w.worker.run(ctx, l)
	stop()
	group.Wait()
	if m, ours := w.worker.(*millrace); ours && err == nil {
		w.buffers, err = m.memory()
	}
	return errors.Join(err, failed)
}

// resident returns the resident memory of the process in bytes, from proc(5).
func resident() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, bench.Unable("the process's memory is read from /proc, which is missing: %w", err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm contains %q: %w", text, err)
	}
	return pages * int64(os.Getpagesize()), nil
}
