package neardup

import (
	"encoding/binary"
	"errors"

	"millrace/internal/device"
)

// NewState returns an empty state of the operator on a CPU. See Index.
func NewState(p Parameters, batch int) (device.State, error) {
	x, err := New(p, batch)
	if err != nil {
		return nil, err
	}
	bytes, err := Bytes(p, batch)
	return &cpuState{index: x, bytes: bytes, keys: make([]uint64, 0, batch*p.Bands)}, err
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
	s.decide(s.verdicts, s.index.applied)
	return s, nil
}

// AppendValue implements device.Decisions.
func (s *cpuState) AppendValue(dst []byte, record int) []byte {
	return s.verdicts[record].AppendValue(dst)
}

// AppendLog implements device.Decisions.
func (s *cpuState) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	return appendLog(&s.index.course, entries, first, end, limit)
}

// Undo implements device.State.
func (s *cpuState) Undo() error {
	if err := s.index.Undo(); err != nil {
		return invalid("undo", err)
	}
	s.reached(s.index.applied)
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

// Close implements device.State. The memory is free when nothing refers to the state.
func (s *cpuState) Close() error { return nil }

// errNotUndoable is the error of Undo without a batch.
var errNotUndoable = errors.New("no batch can be undone: undo a batch before the next call of Apply or Replay")

// invalid returns err as an error of a device.
func invalid(call string, err error) error {
	return device.Errorf(call, "", device.ErrInvalid, "%v", err)
}

// appendLog is course.AppendLog with an error of a device.
func appendLog(c *course, entries [][]byte, first, end, limit int) ([][]byte, error) {
	entries, err := c.AppendLog(entries, first, end, limit)
	if err != nil {
		return nil, invalid("write the log", err)
	}
	return entries, nil
}

// readEntry implements ReadEntry of states.
func readEntry(entry []byte) (device.EntryInfo, error) {
	h, err := ReadHeader(entry)
	if err != nil {
		return device.EntryInfo{}, invalid("read entry", err)
	}
	return device.EntryInfo{Generation: h.Generation, First: h.First, Previous: h.Previous, Last: h.Last}, nil
}
