package neardup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Replay applies a log entry. The first entry of a new index begins a generation. Every other entry must follow the previous one. Replay
// checks every field that it reads. After an error, the index is unusable: Apply and Replay return the error.
//
// A trimmed log may begin with any generation. Apply returns an error until this generation is complete, because verdicts need the
// generation before theirs.
func (x *Index) Replay(entry []byte) error {
	if x.broken == nil {
		x.broken = x.replay(entry)
	}
	return x.broken
}

func (x *Index) replay(entry []byte) error {
	h, err := ReadHeader(entry)
	if err != nil {
		return err
	}
	x.commit()
	begins, err := x.follow(h)
	if err != nil {
		return err
	}
	if begins {
		x.beginGeneration()
	}
	d := newDecoder(h, entry)
	for number, end := h.First, h.First+h.Records; number < end; number += len(x.inserts.Labels) {
		x.inserts.begin(x.parameters, number, x.young.carried)
		if err := d.read(x.inserts, min(end-number, x.batch)); err != nil {
			return err
		}
		if n := x.young.insert(x.inserts); n > 0 {
			return fmt.Errorf("the records from %d of generation %d in the log insert %d keys that are there already", number, h.Generation, n)
		}
		x.applied, x.last = x.applied+uint64(len(x.inserts.Labels)), d.position
	}
	return d.end()
}

// decoder reads the rows of an entry. It stops with the first error.
type decoder struct {
	parameters Parameters
	generation uint64
	rows, keys []byte
	position   Position // position of the last row
	last       Position // position of the entry's last record

	carried [MaxBands]carry // memory for the carried labels of a row
}

var (
	errTruncated = errors.New("the row is truncated")
	errNumber    = errors.New("a number is too large")
	errBands     = errors.New("bands contradict each other")
	errOrder     = errors.New("a position is out of order")
	errCarries   = errors.New("it carries labels wrongly")
)

func newDecoder(h Header, entry []byte) *decoder {
	keyEnd := len(entry) - h.rowBytes
	return &decoder{parameters: h.Parameters, generation: h.Generation, keys: entry[headerSize:keyEnd], rows: entry[keyEnd:], position: h.Previous, last: h.Last}
}

// read appends the next n rows to in.
func (d *decoder) read(in *Inserts, n int) error {
	for range n {
		r, err := d.next()
		if err == nil {
			in.Keys, err = d.appendKeys(in.Keys, r.inserted)
		}
		if err == nil && !in.fits(&r) {
			err = errCarries
		}
		if err != nil {
			return fmt.Errorf("record %d of generation %d in the log: %w", in.First+len(in.Labels), d.generation, err)
		}
		in.add(&r)
	}
	return nil
}

// next returns the next row without its keys. It is valid until the next call.
func (d *decoder) next() (r row, err error) {
	if r.position, err = d.readPosition(); err != nil {
		return r, err
	}
	r.label = r.position
	distance, err := d.number()
	if err == nil && distance > 0 {
		r.label, err = d.readLabel(distance, r.position)
	}
	if err != nil {
		return r, err
	}
	if r.inserted, err = d.bands(); err != nil {
		return r, err
	}
	d.position = r.position
	return r, d.readCarried(&r)
}

// end returns an error unless the whole entry was read and the last row has the position in the header.
func (d *decoder) end() error {
	if len(d.rows) > 0 || len(d.keys) > 0 || d.position != d.last {
		return errors.New("the entry doesn't end at the position in its header")
	}
	return nil
}

func (d *decoder) number() (uint64, error) {
	v, n := binary.Uvarint(d.rows)
	switch {
	case n == 0:
		return 0, errTruncated
	case n < 0:
		return 0, errNumber
	}
	d.rows = d.rows[n:]
	return v, nil
}

// readPosition returns the position of the next row.
func (d *decoder) readPosition() (p Position, err error) {
	distance, err := d.number()
	if err != nil {
		return p, err
	}
	if p.Record, err = d.number(); err != nil {
		return p, err
	}
	if p.Sequence = d.position.Sequence + distance; distance == 0 {
		p.Record += d.position.Record + 1
	}
	if p.Sequence == 0 || p.Compare(d.position) <= 0 || p.Compare(d.last) > 0 {
		return p, errOrder
	}
	return p, nil
}

// readLabel reads the label of the record at position own. distance is one more than the difference of their sequences.
func (d *decoder) readLabel(distance uint64, own Position) (label Position, err error) {
	if distance == 0 || distance > own.Sequence {
		return label, errNumber
	}
	label.Sequence = own.Sequence - (distance - 1)
	if label.Record, err = d.number(); err == nil && label.Compare(own) >= 0 {
		err = errOrder
	}
	return label, err
}

func (d *decoder) bands() (uint64, error) {
	n := d.parameters.bitBytes()
	if len(d.rows) < n {
		return 0, errTruncated
	}
	set := uint64(0)
	for i, b := range d.rows[:n] {
		set |= uint64(b) << (8 * i)
	}
	d.rows = d.rows[n:]
	if bits.Len64(set) > d.parameters.Bands {
		return 0, errBands
	}
	return set, nil
}

// readCarried reads the labels that a record carried over.
func (d *decoder) readCarried(r *row) error {
	code, err := d.number()
	if err != nil {
		return err
	}
	if code>>1 > uint64(bits.OnesCount64(r.inserted)) || code == 1 {
		return errBands
	}
	if r.carries, r.relabeled = int(code>>1), code&1 != 0; r.relabeled {
		return nil
	}
	free := r.inserted
	r.carried = d.carried[:r.carries]
	for i := range r.carried {
		c := &r.carried[i]
		if c.bands, err = d.bands(); err != nil {
			return err
		}
		if c.bands == 0 || c.bands&^free != 0 {
			return errBands
		}
		free &^= c.bands
		distance, err := d.number()
		if err != nil {
			return err
		}
		if c.label, err = d.readLabel(distance, r.position); err != nil {
			return err
		}
	}
	return nil
}

// appendKeys appends the next keys, which belong to the bands in set.
func (d *decoder) appendKeys(keys []uint64, set uint64) ([]uint64, error) {
	n := bits.OnesCount64(set)
	if len(d.keys) < 8*n {
		return keys, errTruncated
	}
	from := d.keys[:8*n]
	d.keys = d.keys[8*n:]
	mask := uint64(1)<<d.parameters.bandBits() - 1
	for ; len(from) >= 8; from = from[8:] {
		key := binary.LittleEndian.Uint64(from)
		if key&mask != uint64(bits.TrailingZeros64(set)+1) {
			return keys, errBands
		}
		set &= set - 1
		keys = append(keys, key)
	}
	return keys, nil
}
