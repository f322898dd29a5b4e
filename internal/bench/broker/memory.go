package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/bench"
)

// memoryEntries are the rows that tell what the process takes.
var memoryEntries = []bench.Entry{
	{Name: "memory", Shows: "the process's memory with Millrace at full speed on payloads of 64 KiB, and its batches'"},
	{Name: "memory-null", Shows: "the same with null-async: what server and client take by themselves"},
}

const (
	memoryBytes = 64 << 10 // of a payload

	// memoryLeast is how many payloads a round has at least: more than the worker ever has in hand.
	memoryLeast = 1536
)

// runMemory looks at the memory while Millrace runs, and while the worker does that computes nothing.
func (b *Bench) runMemory(ctx context.Context, t *bench.Track) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	s.note(t)
	ours := s.links.together(t, parse(operatorLists[0]))
	ours.name = memoryEntries[0].Name
	null := s.links.nulls(t)[0]
	null.name = memoryEntries[1].Name
	all := []*bench.Contender{s.memory(t, ours, b.memoryLeast), s.memory(t, null, b.memoryLeast)}
	if err := t.Race(ctx, all...); err != nil {
		return err
	}
	t.Finish(all...)
	return nil
}

// memory is the contender of a kind that measures what the process takes while it runs.
func (s *site) memory(t *bench.Track, k kind, least int) *bench.Contender {
	n := 0
	return t.Contender(row(t, k, memoryBytes), false, func(ctx context.Context, c *bench.Contender, seed uint64) error {
		if n == 0 {
			var err error
			if n, err = s.pace(ctx, t, k, least, load{seed: ^seed, size: memoryBytes}); err != nil {
				return err
			}
		}
		w := &watched{}
		watching := k
		watching.make = func() mover { w.mover = k.make(); return w }
		if _, err := s.round(ctx, watching, load{seed: seed, n: n, size: memoryBytes}); err != nil {
			return err
		}
		c.Add(figureBefore, "B", float64(w.before))
		c.Add(figureResident, "B", float64(w.most))
		if w.buffers > 0 {
			c.Add(figureBuffers, "B", float64(w.buffers))
		}
		return nil
	})
}

// watched is a mover during whose run the memory is looked at.
type watched struct {
	mover
	before, most int64 // resident bytes
	buffers      int64 // of the pipelines' batches on the host
}

func (w *watched) ready(ctx context.Context, s *site, l load) error {
	debug.FreeOSMemory() // what filling took and nobody holds
	var err error
	if w.before, err = resident(); err != nil {
		return err
	}
	return w.mover.ready(ctx, s, l)
}

// lookEvery is the pause between two looks at the memory.
const lookEvery = 2 * time.Millisecond

func (w *watched) run(ctx context.Context, l load) error {
	looking, stop := context.WithCancel(ctx)
	var looked error
	var group sync.WaitGroup
	group.Go(func() {
		for looked == nil {
			var now int64
			now, looked = resident()
			w.most = max(w.most, now)
			if pause(looking, lookEvery) != nil {
				return
			}
		}
	})
	err := w.mover.run(ctx, l)
	stop()
	group.Wait()
	if m, ours := w.mover.(*millrace); ours && err == nil {
		w.buffers, err = m.memory()
	}
	return errors.Join(err, looked)
}

// resident is the memory that the process has in the machine's, in bytes, by proc(5).
func resident() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, bench.Unable("the process's memory is read from /proc, which is not there: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm says %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
