package neardup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Header is the beginning of a log entry. An entry contains the changes of consecutive records of one generation.
// docs/adr/0055-near-duplicates.md describes the bytes of an entry.
type Header struct {
	Parameters Parameters
	Generation uint64
	First      int      // number of the first record in its generation, from 0
	Records    int      // number of records, at least 1
	Previous   Position // position of the last record before the entry; the zero Position if there is none
	Last       Position // position of the last record

	rowBytes int // size of the rows in bytes
}

const (
	logMagic   = "MRND"
	logVersion = 1
	headerSize = 72
)

// encode appends the header's bytes.
func (h *Header) encode(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, logMagic...)
	b = le.AppendUint16(b, logVersion)
	b = le.AppendUint16(b, uint16(h.Parameters.Bands))
	b = le.AppendUint16(b, uint16(h.Parameters.Rows))
	b = le.AppendUint16(b, uint16(h.Parameters.K))
	b = le.AppendUint32(b, h.Parameters.Seed)
	b = le.AppendUint32(b, uint32(h.Parameters.Records))
	b = le.AppendUint32(b, uint32(h.First))
	b = le.AppendUint64(b, h.Generation)
	for _, p := range []Position{h.Previous, h.Last} {
		b = le.AppendUint64(b, p.Sequence)
		b = le.AppendUint64(b, p.Record)
	}
	b = le.AppendUint32(b, uint32(h.Records))
	return le.AppendUint32(b, uint32(h.rowBytes))
}

// ReadHeader returns the header of a log entry. It returns an error if the header contradicts itself or the entry's size. It doesn't read the
// rows.
func ReadHeader(entry []byte) (h Header, err error) {
	if len(entry) < headerSize || string(entry[:4]) != logMagic {
		return h, errors.New("this isn't an entry of a near-duplicate log")
	}
	le := binary.LittleEndian
	if version := le.Uint16(entry[4:]); version != logVersion {
		return h, fmt.Errorf("the entry has version %d, and this program reads %d: run the version that wrote the log", version, logVersion)
	}
	h.Parameters = Parameters{
		Bands: int(le.Uint16(entry[6:])), Rows: int(le.Uint16(entry[8:])), K: int(le.Uint16(entry[10:])),
		Seed: le.Uint32(entry[12:]), Records: int(le.Uint32(entry[16:])),
	}
	h.First = int(le.Uint32(entry[20:]))
	h.Generation = le.Uint64(entry[24:])
	h.Previous = readPosition(entry[32:])
	h.Last = readPosition(entry[48:])
	h.Records = int(le.Uint32(entry[64:]))
	h.rowBytes = int(le.Uint32(entry[68:]))
	if err := h.Parameters.Validate(); err != nil {
		return h, err
	}
	keyBytes := len(entry) - headerSize - h.rowBytes
	switch {
	case h.Generation >= math.MaxInt64/MaxRecords:
		return h, fmt.Errorf("generation %d is too large", h.Generation)
	case h.Records < 1 || h.First+h.Records > h.Parameters.Records:
		return h, fmt.Errorf("the entry has records %d to %d of a generation of %d", h.First, h.First+h.Records-1, h.Parameters.Records)
	case h.Previous.Compare(h.Last) >= 0:
		return h, errors.New("the entry's last position is not after the one before it")
	case keyBytes < 0 || keyBytes%8 != 0:
		return h, fmt.Errorf("the entry has %d bytes, and %d of rows", len(entry), h.rowBytes)
	}
	return h, nil
}

// maxRow returns the largest size of a row with its keys.
func (p Parameters) maxRow() int {
	varints := 4 + 1 + p.Bands*2 // position, label; number of labels; labels
	return varints*binary.MaxVarintLen64 + (1+p.Bands)*p.bitBytes() + p.Bands*8
}

// bitBytes returns the size of a set of bands in bytes.
func (p Parameters) bitBytes() int { return (p.Bands + 7) / 8 }

// MinEntry returns the smallest limit that AppendLog accepts, in bytes. Every record fits into an entry of that size.
func (p Parameters) MinEntry() int { return headerSize + p.maxRow() }

// MaxEntry is the largest limit that AppendLog accepts, in bytes.
const MaxEntry = 1 << 30

// appendLog implements Index.AppendLog. rowOf returns the row of a record of the last batch, which is valid until the next call.
func (c *progress) appendLog(entries [][]byte, rowOf func(i int) *row, first, end, limit int) ([][]byte, error) {
	if limit < c.parameters.MinEntry() || limit > MaxEntry {
		return nil, fmt.Errorf("a log entry has %d bytes at most: set %d to %d", limit, c.parameters.MinEntry(), MaxEntry)
	}
	state, begin := c.before, 0
	for _, n := range c.parts {
		from, to := max(first, begin), min(end, begin+n)
		if from < to {
			if from > 0 {
				state.applied, state.last = c.before.applied+uint64(from), rowOf(from-1).position
			}
			entries = c.parameters.appendEntries(entries, state, rowOf, from, to, limit)
		}
		begin += n
	}
	return entries, nil
}

// appendEntries appends the entries of the records [from, to), which belong to one generation. s is the state before these records.
func (p Parameters) appendEntries(entries [][]byte, s state, rowOf func(i int) *row, from, to, limit int) [][]byte {
	h := Header{
		Parameters: p, Generation: s.applied / uint64(p.Records), First: int(s.applied % uint64(p.Records)),
		Previous: s.last, Last: s.last,
	}
	// Keys are appended to the entry at once. The rows follow the keys when the entry is complete.
	var entry, encoded []byte
	rows := make([]byte, 0, (to-from)*usualRow)
	begin := func(left int) {
		entry, rows = make([]byte, headerSize, min(limit, headerSize+left*(8*p.Bands+usualRow))), rows[:0]
	}
	end := func() {
		h.rowBytes = len(rows)
		h.encode(entry[:0])
		entries = append(entries, append(entry, rows...))
		h.First, h.Records, h.Previous = h.First+h.Records, 0, h.Last
	}
	begin(to - from)
	for i := from; i < to; i++ {
		r := rowOf(i)
		encoded = p.appendRow(encoded[:0], r, h.Last)
		if len(entry)+len(rows)+len(encoded)+len(r.keys) > limit {
			end()
			begin(to - i)
		}
		rows = append(rows, encoded...)
		entry = append(entry, r.keys...)
		h.Records, h.Last = h.Records+1, r.position
	}
	end()
	return entries
}

// usualRow is the initial allocation of appendEntries for a row without its keys, in bytes.
const usualRow = 16

// appendRow appends a row without its keys. previous is the position of the previous record.
func (p Parameters) appendRow(b []byte, r *row, previous Position) []byte {
	b = binary.AppendUvarint(b, r.position.Sequence-previous.Sequence)
	if r.position.Sequence == previous.Sequence {
		b = binary.AppendUvarint(b, r.position.Record-previous.Record-1)
	} else {
		b = binary.AppendUvarint(b, r.position.Record)
	}
	if r.label == r.position {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, 1+r.position.Sequence-r.label.Sequence)
		b = binary.AppendUvarint(b, r.label.Record)
	}
	b = p.appendBits(b, r.inserted)
	code := uint64(r.carries) << 1
	if r.relabeled {
		code |= 1
	}
	b = binary.AppendUvarint(b, code)
	for _, c := range r.carried {
		b = p.appendBits(b, c.bands)
		b = binary.AppendUvarint(b, 1+r.position.Sequence-c.label.Sequence)
		b = binary.AppendUvarint(b, c.label.Record)
	}
	return b
}

func (p Parameters) appendBits(b []byte, bands uint64) []byte {
	return binary.LittleEndian.AppendUint64(b, bands)[:len(b)+p.bitBytes()]
}
