package neardup

import (
	"encoding/binary"
	"sync/atomic"

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
	index    *Index
	bytes    int64
	keys     []uint64
	verdicts []Verdict

	decided, hits atomic.Uint64
	applied       atomic.Uint64
}

// Apply implements device.State.
func (s *cpuState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	s.keys = s.keys[:0]
	for ; len(keys) >= 8; keys = keys[8:] {
		s.keys = append(s.keys, binary.LittleEndian.Uint64(keys))
	}
	var err error
	if s.verdicts, err = s.index.Apply(positions, s.keys); err != nil {
		return nil, device.Errorf("apply", "", device.ErrInvalid, "%v", err)
	}
	s.decided.Add(uint64(len(s.verdicts)))
	for i := range s.verdicts {
		if s.verdicts[i].Bands > 0 {
			s.hits.Add(1)
		}
	}
	s.applied.Store(s.index.applied)
	return s, nil
}

// AppendValue implements device.Decisions.
func (s *cpuState) AppendValue(dst []byte, record int) []byte {
	return s.verdicts[record].AppendValue(dst)
}

// AppendLog implements device.Decisions.
func (s *cpuState) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	entries, err := s.index.AppendLog(entries, first, end, limit)
	if err != nil {
		return nil, device.Errorf("write the log", "", device.ErrInvalid, "%v", err)
	}
	return entries, nil
}

// Undo implements device.State.
func (s *cpuState) Undo() error {
	if err := s.index.Undo(); err != nil {
		return device.Errorf("undo", "", device.ErrInvalid, "%v", err)
	}
	s.applied.Store(s.index.applied)
	return nil
}

// Replay implements device.State.
func (s *cpuState) Replay(entry []byte) error {
	if err := s.index.Replay(entry); err != nil {
		return device.Errorf("replay", "", device.ErrInvalid, "%v", err)
	}
	s.applied.Store(s.index.applied)
	return nil
}

// ReadEntry implements device.State.
func (s *cpuState) ReadEntry(entry []byte) (device.EntryInfo, error) {
	h, err := ReadHeader(entry)
	if err != nil {
		return device.EntryInfo{}, device.Errorf("read entry", "", device.ErrInvalid, "%v", err)
	}
	return device.EntryInfo{Generation: h.Generation, First: h.First, Previous: h.Previous, Last: h.Last}, nil
}

// Applied implements device.State.
func (s *cpuState) Applied() (records uint64, last device.Position) { return s.index.Applied() }

// Stats implements device.State.
func (s *cpuState) Stats() device.StateStats {
	applied, generation := s.applied.Load(), uint64(s.index.parameters.Records)
	stats := device.StateStats{Bytes: s.bytes, Records: applied, Decided: s.decided.Load(), Hits: s.hits.Load()}
	if applied > 0 {
		stats.Generation = (applied - 1) / generation
		young := applied - stats.Generation*generation
		stats.Load = float64(young) / float64(generation)
		stats.Records = young
		if stats.Generation > 0 {
			stats.Records += generation
		}
	}
	return stats
}

// Close implements device.State.
func (s *cpuState) Close() error {
	s.index = nil
	return nil
}
