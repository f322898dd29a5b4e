package neardup

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"millrace/internal/device"
)

// Tables are the tables of an index in the memory of a device. Package cuda implements them for a GPU. If a call fails, they are unusable.
type Tables interface {
	// Apply decides on records and inserts their keys. The results are valid until the next call of a method.
	Apply(positions []Position, keys []byte) error

	// Result returns the result of record i of the last batch.
	Result(i int) Result

	// Undo removes the records of the last batch.
	Undo() error

	// Replay inserts keys of a log.
	Replay(r *Inserts) error

	// Bytes returns the size of the tables.
	Bytes() int64

	Close() error
}

// Result is what Tables say about a record of a batch.
type Result struct {
	Label     Position    // the least label of its hits; its own position if it has none
	Hits      int         // number of keys that were there
	Also      []Position  // the other labels of its hits, in ascending order
	Inserted  uint64      // bands of the keys that it inserted
	Carries   int         // number of different labels of its copied keys
	Relabeled bool        // whether its copied keys have its own label, because the generation can't carry theirs; Carried is then empty
	Carried   []CarryOver // one for each different label of its copied keys, in the order of their first bands
}

// CarryOver is a label that a record carried over from the old generation, with the bands of the copied keys.
type CarryOver struct {
	Label Position
	Bands uint64
}

// Inserts are the keys of consecutive records of a log, of one generation.
type Inserts struct {
	First         int        // number of the first record in its generation. It follows the last one, or is 0 after a full generation.
	Labels        []Position // of each record
	Carries       int        // sum of the records' Result.Carries
	FirstCarried  int        // labels that the records before them in the generation carry over
	CarriedLabels []Position // the labels that these records carry over
	Keys          []uint64
	KeyLabels     []uint32 // of each key: the number of its carried label, or Parameters.Records plus the number of its record in the generation
}

// NewDeviceState returns an empty state with the given empty tables, which the state closes.
func NewDeviceState(p Parameters, batch int, t Tables) device.State {
	return &tablesState{course: course{parameters: p, batch: batch}, tables: t}
}

// tablesState implements device.State with Tables.
type tablesState struct {
	course
	counts
	tables Tables

	carries [2]int // labels that the records of the young generation carry over: before the last batch, and now

	rows     []row
	keys     []uint64 // inserted keys of rows
	carried  []carry  // carried labels of rows
	verdicts []Verdict
}

// Apply implements device.State.
func (s *tablesState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	if err := s.check(positions, len(keys)/KeyBytes); err != nil {
		return nil, device.Errorf("apply", "", device.ErrInvalid, "%v", err)
	}
	s.commit()
	if len(positions) > 0 {
		if err := s.tables.Apply(positions, keys); err != nil {
			s.broken = err
			return nil, err
		}
	}
	s.before, s.undoable, s.carries[0] = s.state, true, s.carries[1]
	s.rows, s.keys, s.carried, s.verdicts = s.rows[:0], s.keys[:0], s.carried[:0], s.verdicts[:0]
	fits := int(min(uint64(len(positions)), s.end()-s.applied))
	for i, p := range positions {
		if i == fits {
			s.carries[1] = 0 // the record begins a generation
		}
		s.add(p, s.tables.Result(i), keys[i*s.parameters.Bands*KeyBytes:])
	}
	s.parts = [2][]row{s.rows[:fits], s.rows[fits:]}
	if s.applied += uint64(len(positions)); len(positions) > 0 {
		s.last = positions[len(positions)-1]
	}
	s.decide(s.verdicts, s.applied)
	return s, nil
}

// add appends a record's row and verdict. keys begins with the record's keys.
func (s *tablesState) add(p Position, r Result, keys []byte) {
	firstKey, firstCarried := len(s.keys), len(s.carried)
	for set := r.Inserted; set != 0; set &= set - 1 {
		s.keys = append(s.keys, binary.LittleEndian.Uint64(keys[bits.TrailingZeros64(set)*KeyBytes:]))
	}
	for _, c := range r.Carried {
		s.carried = append(s.carried, carry{bands: c.Bands, label: c.Label})
	}
	s.carries[1] += r.Carries
	s.rows = append(s.rows, row{
		position: p, label: r.Label, inserted: r.Inserted, keys: s.keys[firstKey:], carries: r.Carries, relabeled: r.Relabeled, carried: s.carried[firstCarried:],
	})
	v := Verdict{Bands: r.Hits}
	if r.Hits > 0 {
		v.DuplicateOf, v.Also = r.Label, r.Also
	}
	s.verdicts = append(s.verdicts, v)
}

// commit makes the last batch permanent.
func (s *tablesState) commit() {
	if len(s.parts[1]) > 0 {
		s.generation++
	}
	s.parts, s.undoable = [2][]row{}, false
}

// AppendValue implements device.Decisions.
func (s *tablesState) AppendValue(dst []byte, record int) []byte {
	return s.verdicts[record].AppendValue(dst)
}

// AppendLog implements device.Decisions.
func (s *tablesState) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	return appendLog(&s.course, entries, first, end, limit)
}

// Undo implements device.State.
func (s *tablesState) Undo() error {
	switch {
	case s.broken != nil:
		return s.broken
	case !s.undoable:
		return invalid("undo", errNotUndoable)
	}
	if s.applied > s.before.applied { // tables don't know empty batches
		if err := s.tables.Undo(); err != nil {
			s.broken = err
			return err
		}
	}
	s.state, s.carries[1] = s.before, s.carries[0]
	s.parts, s.undoable = [2][]row{}, false
	s.reached(s.applied)
	return nil
}

// Replay implements device.State.
func (s *tablesState) Replay(entry []byte) error {
	if s.broken == nil {
		s.broken = s.replay(entry)
	}
	return s.broken
}

func (s *tablesState) replay(entry []byte) error {
	h, err := ReadHeader(entry)
	if err != nil {
		return invalid("replay", err)
	}
	s.commit()
	turns, err := s.follow(h)
	if err != nil {
		return invalid("replay", err)
	}
	if turns {
		s.generation++
		s.carries[1] = 0
	}
	d := newDecoder(h, entry)
	for number, end := h.First, h.First+h.Records; number < end; {
		n := min(end-number, s.batch)
		if err := s.insert(d, number, n); err != nil {
			return err
		}
		number += n
	}
	s.reached(s.applied)
	if err := d.end(); err != nil {
		return invalid("replay", err)
	}
	return nil
}

// insert replays the next n records of an entry, from the one with a number in its generation on.
func (s *tablesState) insert(d *decoder, number, n int) error {
	in := &Inserts{First: number, FirstCarried: min(s.carries[1], s.parameters.Records)}
	for i := range n {
		r, err := d.next()
		if err != nil {
			return invalid("replay", err)
		}
		if fits := s.carries[1]+r.carries <= s.parameters.Records; r.carries > 0 && fits == r.relabeled {
			return device.Errorf("replay", "", device.ErrInvalid, "record %d carries labels wrongly", number+i)
		}
		in.Labels = append(in.Labels, r.label)
		for _, key := range r.keys {
			band := r.inserted & -r.inserted
			r.inserted &^= band
			label := s.parameters.Records + number + i
			for k, c := range r.carried {
				if c.bands&band != 0 {
					label = s.carries[1] + k
				}
			}
			in.Keys, in.KeyLabels = append(in.Keys, key), append(in.KeyLabels, uint32(label))
		}
		for _, c := range r.carried {
			in.CarriedLabels = append(in.CarriedLabels, c.label)
		}
		in.Carries += r.carries
		s.carries[1] += r.carries
		s.applied++
		s.last = r.position
	}
	return s.tables.Replay(in)
}

// Close implements device.State.
func (s *tablesState) Close() error { return s.tables.Close() }

// ReadEntry implements device.State.
func (s *tablesState) ReadEntry(entry []byte) (device.EntryInfo, error) { return readEntry(entry) }

// Stats implements device.State.
func (s *tablesState) Stats() device.StateStats {
	return s.stats(s.tables.Bytes(), s.parameters.Records)
}

// counts are the figures of a state. Any goroutine may read them.
type counts struct{ decided, hits, taken atomic.Uint64 }

// decide counts the verdicts on a batch. The state has taken a number of records.
func (c *counts) decide(verdicts []Verdict, taken uint64) {
	c.decided.Add(uint64(len(verdicts)))
	for i := range verdicts {
		if verdicts[i].Bands > 0 {
			c.hits.Add(1)
		}
	}
	c.reached(taken)
}

func (c *counts) reached(taken uint64) { c.taken.Store(taken) }

// stats returns the figures of a state of the given size. A generation has the given number of records.
func (c *counts) stats(bytes int64, records int) device.StateStats {
	taken, generation := c.taken.Load(), uint64(records)
	s := device.StateStats{Bytes: bytes, Records: taken, Decided: c.decided.Load(), Hits: c.hits.Load()}
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
