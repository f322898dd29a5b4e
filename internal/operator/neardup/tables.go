package neardup

import (
	"math/bits"

	"millrace/internal/device"
)

// Tables are the tables of an index in the memory of a device. Package cuda implements them for a GPU. All memory is allocated when they
// are created. After a call fails, they are unusable.
type Tables interface {
	// Apply decides on at least one record, and inserts the records' keys. The caller has checked the band of each key. hits is the
	// number of records with hits. carries is the number of labels that the records of the young generation carry over so far.
	Apply(positions []Position, keys []byte) (hits, carries int, err error)

	// Read sets r to the result of record i of the last batch, and reuses the memory of r's slices. The results remain until the next call
	// of Apply, Undo or Inserts.
	Read(i int, r *Result)

	// Undo removes the records of the last batch.
	Undo() error

	// Inserts returns empty Inserts, whose slices have space for a batch. The caller fills them with keys of a log, and Replay inserts
	// these keys.
	Inserts() *Inserts
	Replay(r *Inserts) error

	// Bytes returns the size of the tables in bytes.
	Bytes() int64

	Close() error
}

// Result is the result of Apply for one record.
type Result struct {
	Position  Position
	Label     Position    // least label of its hits, or its own position if it has no hits
	Hits      int         // number of its keys that the tables already contained
	Also      []Position  // other labels of its hits, in ascending order
	Inserted  uint64      // bands of the keys that it inserted
	Keys      []byte      // all its keys, in the order of bands; the Result doesn't own this memory
	Carries   int         // number of different labels of its copied keys
	Relabeled bool        // whether its copied keys have the record's label, because the generation has no space for their labels; Carried is then empty
	Carried   []CarryOver // one for each different label of its copied keys, in the order of their first bands
}

// CarryOver is a label that a record carried over from the old generation, with the bands of the copied keys.
type CarryOver struct {
	Label Position
	Bands uint64
}

// NewDeviceState returns an empty state with empty tables t. The state owns t and closes it.
func NewDeviceState(p Parameters, batch int, t Tables) device.State {
	s := &tablesState{progress: progress{parameters: p, batch: batch}, tables: t}
	for i := range 4 * p.Bands {
		s.bands = append(s.bands, byte(i%p.Bands+1))
	}
	return s
}

// tablesState implements device.State with Tables. It reads a result from the tables when a caller needs it.
type tablesState struct {
	progress
	counts
	tables Tables

	carries [2]int // labels that the records of the young generation carry over: before the last batch, and now

	result  Result // result of the record that was read last
	current row    // row of result
	keys    []byte // memory for the keys of current
	bands   []byte // lowest bytes of the keys of four records
}

// Apply implements device.State.
func (s *tablesState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	err := s.check(positions, len(keys)/KeyBytes)
	if err == nil {
		err = s.checkBands(keys)
	}
	if err != nil {
		return nil, invalid("apply", err)
	}
	s.commit()
	hits, carries := 0, s.carries[1]
	if len(positions) > 0 { // Tables.Apply doesn't accept empty batches
		if hits, carries, err = s.tables.Apply(positions, keys); err != nil {
			s.broken = err
			return nil, err
		}
	}
	s.before, s.undoable, s.carries = s.state, true, [2]int{s.carries[1], carries}
	fits := int(min(uint64(len(positions)), s.end()-s.applied))
	s.parts = [2]int{fits, len(positions) - fits}
	if s.applied += uint64(len(positions)); len(positions) > 0 {
		s.last = positions[len(positions)-1]
	}
	s.decide(len(positions), hits, s.applied)
	return s, nil
}

// checkBands returns an error unless each key contains its band, which is in the lowest byte.
func (s *tablesState) checkBands(keys []byte) error {
	bands, mask := s.parameters.Bands, byte(1<<s.parameters.bandBits()-1)
	if s.ofBands(keys)&mask == 0 {
		return nil
	}
	for i := 0; len(keys) > 0; i++ {
		for b := range bands {
			if keys[b*KeyBytes]&mask != byte(b+1) {
				return errBandOf(i*bands+b, bands)
			}
		}
		keys = keys[bands*KeyBytes:]
	}
	return nil
}

// ofBands returns the bits in which the lowest byte of any key differs from its band. It compares four keys per step, which takes
// a third of the time.
func (s *tablesState) ofBands(keys []byte) (differ byte) {
	const step = 4 * KeyBytes
	bands := s.bands
	for ; len(keys) >= step; keys = keys[step:] {
		k, b := keys[:step:step], bands[:4:4]
		differ |= (k[0] ^ b[0]) | (k[KeyBytes] ^ b[1]) | (k[2*KeyBytes] ^ b[2]) | (k[3*KeyBytes] ^ b[3])
		if bands = bands[4:]; len(bands) == 0 {
			bands = s.bands
		}
	}
	for ; len(keys) >= KeyBytes; keys, bands = keys[KeyBytes:], bands[1:] {
		differ |= keys[0] ^ bands[0]
	}
	return differ
}

// row returns the row of a record of the last batch. It is valid until the next call.
func (s *tablesState) row(i int) *row {
	r, w := &s.result, &s.current
	s.tables.Read(i, r)
	w.position, w.label, w.inserted, w.carries, w.relabeled = r.Position, r.Label, r.Inserted, r.Carries, r.Relabeled
	w.carried = w.carried[:0]
	for _, c := range r.Carried {
		w.carried = append(w.carried, carry{bands: c.Bands, label: c.Label})
	}
	if w.keys = r.Keys; bits.OnesCount64(r.Inserted) < s.parameters.Bands {
		s.keys = s.keys[:0]
		for set := r.Inserted; set != 0; set &= set - 1 {
			s.keys = append(s.keys, r.Keys[bits.TrailingZeros64(set)*KeyBytes:][:KeyBytes]...)
		}
		w.keys = s.keys
	}
	return w
}

// commit makes the last batch permanent.
func (s *tablesState) commit() {
	if s.parts[1] > 0 {
		s.generation++
	}
	s.parts, s.undoable = [2]int{}, false
}

// AppendValue implements device.Decisions.
func (s *tablesState) AppendValue(dst []byte, record int) []byte {
	r := &s.result
	s.tables.Read(record, r)
	v := Verdict{Bands: r.Hits}
	if r.Hits > 0 {
		v.DuplicateOf, v.Also = r.Label, r.Also
	}
	return v.AppendValue(dst)
}

// AppendLog implements device.Decisions.
func (s *tablesState) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	entries, err := s.appendLog(entries, s.row, first, end, limit)
	return entries, invalid("write the log", err)
}

// Undo implements device.State.
func (s *tablesState) Undo() error {
	switch {
	case s.broken != nil:
		return s.broken
	case !s.undoable:
		return invalid("undo", errNotUndoable)
	}
	if s.applied > s.before.applied { // an empty batch isn't applied to Tables
		if err := s.tables.Undo(); err != nil {
			s.broken = err
			return err
		}
	}
	s.state, s.carries[1] = s.before, s.carries[0]
	s.parts, s.undoable = [2]int{}, false
	s.undecide(s.applied)
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
	begins, err := s.follow(h)
	if err != nil {
		return invalid("replay", err)
	}
	if begins {
		s.generation++
		s.carries[1] = 0
	}
	d := newDecoder(h, entry)
	for number, end := h.First, h.First+h.Records; number < end; {
		in := s.tables.Inserts()
		in.begin(s.parameters, number, s.carries[1])
		if err := d.read(in, min(end-number, s.batch)); err != nil {
			return invalid("replay", err)
		}
		if err := s.tables.Replay(in); err != nil {
			return err
		}
		s.carries[1] += in.Carries
		s.applied, s.last = s.applied+uint64(len(in.Labels)), d.position
		number += len(in.Labels)
	}
	s.reached(s.applied)
	if err := d.end(); err != nil {
		return invalid("replay", err)
	}
	return nil
}

// Close implements device.State.
func (s *tablesState) Close() error { return s.tables.Close() }

// ReadEntry implements device.State.
func (s *tablesState) ReadEntry(entry []byte) (device.EntryInfo, error) { return readEntry(entry) }

// Stats implements device.State.
func (s *tablesState) Stats() device.StateStats {
	return s.stats(s.tables.Bytes(), s.parameters.Records)
}
