package neardup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"millrace/internal/device"
)

// NewState returns an empty state of the operator on a CPU, based on an Index.
func NewState(p Parameters, batch int) (device.State, error) {
	x, err := New(p, batch)
	if err != nil {
		return nil, err
	}
	bytes, err := StateBytes(p, batch)
	return &cpuState{index: x, bytes: bytes, keys: make([]uint64, 0, batch*p.Bands)}, err
}

// StateBytes returns the size in bytes of a state on a CPU: its index, and the keys of a batch.
func StateBytes(p Parameters, batch int) (int64, error) {
	bytes, err := Bytes(p, batch)
	return bytes + int64(batch)*int64(p.Bands)*KeyBytes, err
}

// cpuState implements device.State with an Index.
type cpuState struct {
	counts
	index    *Index
	bytes    int64
	keys     []uint64
	verdicts []Verdict
}

// Apply implements device.State.
func (s *cpuState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	s.keys = s.keys[:0]
	for ; len(keys) >= KeyBytes; keys = keys[KeyBytes:] {
		s.keys = append(s.keys, binary.LittleEndian.Uint64(keys))
	}
	var err error
	if s.verdicts, err = s.index.Apply(positions, s.keys); err != nil {
		return nil, invalid("apply", err)
	}
	hits := 0
	for i := range s.verdicts {
		if s.verdicts[i].Bands > 0 {
			hits++
		}
	}
	s.decide(len(positions), hits, s.index.applied)
	return s, nil
}

// AppendValue implements device.Decisions.
func (s *cpuState) AppendValue(dst []byte, record int) []byte {
	return s.verdicts[record].AppendValue(dst)
}

// AppendLog implements device.Decisions.
func (s *cpuState) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	entries, err := s.index.AppendLog(entries, first, end, limit)
	return entries, invalid("write the log", err)
}

// Undo implements device.State.
func (s *cpuState) Undo() error {
	if err := s.index.Undo(); err != nil {
		return invalid("undo", err)
	}
	s.undecide(s.index.applied)
	return nil
}

// Replay implements device.State.
func (s *cpuState) Replay(entry []byte) error {
	if err := s.index.Replay(entry); err != nil {
		return invalid("replay", err)
	}
	s.reached(s.index.applied)
	return nil
}

// ReadEntry implements device.State.
func (s *cpuState) ReadEntry(entry []byte) (device.EntryInfo, error) { return readEntry(entry) }

// Applied implements device.State.
func (s *cpuState) Applied() (records uint64, last device.Position) { return s.index.Applied() }

// Stats implements device.State.
func (s *cpuState) Stats() device.StateStats {
	return s.stats(s.bytes, s.index.parameters.Records)
}

// Close implements device.State. The garbage collector frees the memory.
func (s *cpuState) Close() error { return nil }

// errNotUndoable is the error of Undo without a batch.
var errNotUndoable = errors.New("no batch can be undone: undo a batch before the next call of Apply or Replay")

// errBandOf is the error of Apply for key number i.
func errBandOf(i, bands int) error {
	return fmt.Errorf("key %d of record %d isn't of its band: compute keys with the operator's kernel", i%bands, i/bands)
}

// invalid wraps err in an error of a device. It returns nil if err is nil.
func invalid(call string, err error) error {
	if err == nil {
		return nil
	}
	return device.Errorf(call, "", device.ErrInvalid, "%v", err)
}

// readEntry implements ReadEntry of states.
func readEntry(entry []byte) (device.EntryInfo, error) {
	h, err := ReadHeader(entry)
	if err != nil {
		return device.EntryInfo{}, invalid("read entry", err)
	}
	return device.EntryInfo{Generation: h.Generation, First: h.First, Previous: h.Previous, Last: h.Last}, nil
}

// counts are the counters of a state.
type counts struct {
	made, kept tally // made counts all batches, and kept all but the last; only the state's goroutine uses them

	// Other goroutines read these counters. decided and hits are the largest values of made so far, so they don't decrease when a batch
	// is undone. A batch that is undone and applied again counts once.
	decided, hits, taken atomic.Uint64
}

// tally counts decisions.
type tally struct{ decided, hits uint64 }

// decide counts the decisions on a batch. taken is the number of records that the state has applied or replayed.
func (c *counts) decide(decisions, hits int, taken uint64) {
	c.kept = c.made
	c.made.decided += uint64(decisions)
	c.made.hits += uint64(hits)
	c.decided.Store(max(c.decided.Load(), c.made.decided)) // before hits, because stats reads hits first and must not return more hits than decisions
	c.hits.Store(max(c.hits.Load(), c.made.hits))
	c.reached(taken)
}

// undecide reverts the last call of decide.
func (c *counts) undecide(taken uint64) {
	c.made = c.kept
	c.reached(taken)
}

func (c *counts) reached(taken uint64) { c.taken.Store(taken) }

// stats returns the statistics for device.State.Stats. bytes is the size of the state, and records is the number of records in a
// generation.
func (c *counts) stats(bytes int64, records int) device.StateStats {
	taken, hits, generation := c.taken.Load(), c.hits.Load(), uint64(records)
	s := device.StateStats{Bytes: bytes, Records: taken, Decided: c.decided.Load(), Hits: hits}
	if taken > 0 {
		s.Generation = (taken - 1) / generation
		s.Records = taken - s.Generation*generation
		s.Load = float64(s.Records) / float64(generation)
	}
	if s.Generation > 0 {
		s.Records += generation
	}
	return s
}
