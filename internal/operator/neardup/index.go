package neardup

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Index is the index of one partition. It processes batches of records, and can undo the last batch. Create it with New. Only one
// goroutine at a time may call its methods.
type Index struct {
	progress

	// spare holds the records of a batch that belong to the next generation. When the batch can no longer be undone, they move to the table
	// of the old generation. Until then, the old generation remains complete.
	young, old, spare *generation

	step     step
	rows     []row     // memory for the rows of a batch
	verdicts []Verdict // verdicts of the last batch
	carried  int       // number of labels that the young generation carried over before the last batch
	inserts  *Inserts  // memory for the changes that commit and Replay insert
}

// spareSize returns the size of the spare generation.
func (p Parameters) spareSize(batch int) generationSize {
	return generationSize{records: batch, carried: min(p.Records, batch*p.Bands)}
}

// Bytes returns the size of the memory that New allocates, in bytes, without the Index itself (some hundred bytes). batch is the maximum
// number of records in a batch.
func Bytes(p Parameters, batch int) (int64, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	if batch < 1 || batch > p.Records || batch > MaxBatch {
		return 0, fmt.Errorf("a batch of %d records: set 1 to %d, and no more than a generation, which is %d", batch, MaxBatch, p.Records)
	}
	const (
		perKey    = 8 + 4 + 4 + 8 + 24 + 16 + 8 + 4 // slots, found, former, newKeys, carried; Keys, KeyLabels and CarriedLabels of inserts
		perRecord = 8 + 4 + 104 + 48 + 16           // copied, waiting, rows, verdicts; Labels of inserts
	)
	n, b := int64(batch), int64(p.Bands)
	scratch := n*b*perKey + n*perRecord + n*(b-1)*16 // the last term is the memory of also
	generation := generationSize{records: p.Records, carried: p.Records}
	return 2*generation.bytes(p.Bands) + p.spareSize(batch).bytes(p.Bands) + scratch, nil
}

// MaxBatch is the maximum number of records in a batch.
const MaxBatch = 1 << 20

// New returns an index without records. It allocates the number of bytes that Bytes returns.
func New(p Parameters, batch int) (*Index, error) {
	if _, err := Bytes(p, batch); err != nil {
		return nil, err
	}
	full := generationSize{records: p.Records, carried: p.Records}
	return &Index{
		progress: progress{parameters: p, batch: batch},
		young:    newGeneration(full, p.Bands), old: newGeneration(full, p.Bands), spare: newGeneration(p.spareSize(batch), p.Bands),
		step: step{parameters: p, scratch: scratch{
			slots: make([]int, batch*p.Bands), found: make([]uint32, batch*p.Bands), former: make([]uint32, batch*p.Bands),
			copied: make([]uint64, batch), waiting: make([]int32, 0, batch),
			newKeys: make([]byte, 0, batch*p.Bands*KeyBytes), carried: make([]carry, 0, batch*p.Bands), also: make([]Position, 0, batch*(p.Bands-1)),
		}},
		rows: make([]row, batch), verdicts: make([]Verdict, batch), inserts: newInserts(p, batch),
	}, nil
}

// Apply returns the verdicts on consecutive records and inserts their keys. positions and keys have the position and the keys (see
// AppendKeys) of each record. Positions ascend from batch to batch, so a batch can't be applied twice. The verdicts are valid until the
// next call of Apply. If Apply returns an error, the index is unchanged. Otherwise, Undo can no longer remove earlier batches.
func (x *Index) Apply(positions []Position, keys []uint64) ([]Verdict, error) {
	if err := x.check(positions, len(keys)); err != nil {
		return nil, err
	}
	for i, key := range keys {
		if x.parameters.bandOf(key) != i%x.parameters.Bands {
			return nil, errBandOf(i, x.parameters.Bands)
		}
	}
	x.commit()
	x.before, x.carried, x.undoable = x.state, x.young.carried, true

	n := len(positions)
	fits := int(min(uint64(n), x.end()-x.applied))
	for i, p := range positions {
		x.rows[i].position = p
	}
	x.step.newKeys, x.step.carried, x.step.also = x.step.newKeys[:0], x.step.carried[:0], x.step.also[:0]
	x.parts = [2]int{fits, n - fits}
	x.run(0, fits, keys, x.young, x.old)
	x.run(fits, n, keys, x.spare, x.young)
	return x.verdicts[:n], nil
}

// run applies the records of a batch from first to end, which belong to the generation young.
func (x *Index) run(first, end int, keys []uint64, young, old *generation) {
	if first == end {
		return
	}
	bands, s := x.parameters.Bands, &x.step
	s.young, s.old, s.rows, s.keys = young, old, x.rows[first:end], keys[first*bands:end*bands]
	s.firstLabel = young.firstRecord + uint32(x.applied%uint64(x.parameters.Records))
	slots := s.slots
	s.slots = slots[first*bands:] // Undo needs the slots of both parts
	s.run(x.verdicts[first:end])
	s.slots = slots
	x.applied += uint64(end - first)
	x.last = x.rows[end-1].position
}

// commit makes the last batch permanent.
func (x *Index) commit() {
	if x.parts[1] > 0 {
		x.beginGeneration()
		x.inserts.begin(x.parameters, 0, 0)
		for i := range x.rows[x.parts[0]:][:x.parts[1]] {
			r := &x.rows[x.parts[0]+i]
			for k := r.keys; len(k) > 0; k = k[KeyBytes:] {
				x.inserts.Keys = append(x.inserts.Keys, binary.LittleEndian.Uint64(k))
			}
			x.inserts.add(r)
		}
		x.young.insert(x.inserts)
		x.spare.clear()
	}
	x.parts, x.undoable = [2]int{}, false
}

// beginGeneration makes the young generation the old one, and begins an empty young one.
func (x *Index) beginGeneration() {
	x.young, x.old = x.old, x.young
	x.young.clear()
	x.generation++
}

// Undo removes the records of the last batch, as if Apply had not been called. Undo returns an error if Apply wasn't the last successful
// call.
func (x *Index) Undo() error {
	if !x.undoable {
		return errNotUndoable
	}
	for i, r := range x.rows[:x.parts[0]] {
		for set := r.inserted; set != 0; set &= set - 1 {
			x.young.keys[x.step.slots[i*x.parameters.Bands+bits.TrailingZeros64(set)]] = 0
		}
	}
	if x.parts[1] > 0 {
		x.spare.clear()
	}
	x.young.carried, x.state = x.carried, x.before
	x.parts, x.undoable = [2]int{}, false
	return nil
}

// AppendLog appends the log entries of the records [first, end) of the last batch, of at most limit bytes each. The entries of all records,
// in order, describe all changes. Replaying them therefore gives an index with the same verdicts. No entry contains rows of two
// generations. The limit is from MinEntry to MaxEntry. Call AppendLog before the next call of Apply, Undo or Replay.
func (x *Index) AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error) {
	return x.appendLog(entries, func(i int) *row { return &x.rows[i] }, first, end, limit)
}
