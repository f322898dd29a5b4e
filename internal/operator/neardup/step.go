package neardup

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// step applies consecutive records of one generation to its table at once. Like the GPU version, it has four parts: probe, gather, settle
// and finish. In each part, the order of keys or records doesn't matter, except where a GPU computes a prefix sum.
//
// The label of a record is firstLabel plus its number in the step. A label below firstLabel was therefore in the table before the batch.
// Any other label names the first record of the batch that has the key.
type step struct {
	parameters Parameters
	young, old *generation
	firstLabel uint32
	keys       []uint64 // keys of all records, by record and band
	scratch
	rows []row // results of the step; the caller sets the positions

	shuffle func(n int, visit func(int)) // in tests: visits 0 to n-1 in another order
}

// scratch is memory for the largest batch.
type scratch struct {
	slots   []int      // by key: its slot in the young generation
	found   []uint32   // by key: its label in the young generation after probe
	former  []uint32   // by key: its label in the old generation, if it was absent from the young one; otherwise absent
	copied  []uint64   // by record: the bands of keys that it copies from the old generation
	waiting []int32    // numbers of records whose label depends on records of the same batch
	newKeys []byte     // keys of the rows
	carried []carry    // carried labels of the rows
	also    []Position // lists of the verdicts
}

// absent is the label of a key that isn't in the old generation.
const absent = 1<<32 - 1

// run applies the records and writes their verdicts.
func (s *step) run(verdicts []Verdict) {
	n, firstCarried := len(s.rows), s.young.carried
	s.waiting = s.waiting[:0]
	s.probe()
	s.each(n, s.gather)
	s.carryOver()
	s.each(n, s.guess)
	s.settle()
	s.each(n, func(r int) { verdicts[r] = s.finish(r) })
	s.store(firstCarried)
}

// each calls visit with each number from 0 to n-1.
func (s *step) each(n int, visit func(int)) {
	if s.shuffle != nil {
		s.shuffle(n, visit)
		return
	}
	for i := range n {
		visit(i)
	}
}

// probe finds all keys in the young generation, or inserts them. Each key gets the least label of its records, which is an atomic
// minimum on a GPU.
func (s *step) probe() {
	bands := s.parameters.Bands
	s.young.put(s.keys, func(all []place) {
		for _, p := range all {
			own := s.firstLabel + uint32(int(p.key)/bands)
			if p.found {
				own = min(own, s.young.labels[p.slot])
			}
			s.young.labels[p.slot] = own
			s.slots[p.key] = p.slot
		}
	})
}

// gather looks up the keys of record r in the old generation, except the keys that the young generation contained before the batch. It
// also notes the keys that the record inserted.
func (s *step) gather(r int) {
	inserted, copied := uint64(0), uint64(0)
	for b := range s.parameters.Bands {
		i := r*s.parameters.Bands + b
		label := s.young.labels[s.slots[i]]
		s.found[i], s.former[i] = label, absent
		if label < s.firstLabel {
			continue
		}
		slot, found := s.old.find(s.keys[i])
		if found {
			s.former[i] = s.old.labels[slot]
		}
		if label == s.firstLabel+uint32(r) {
			inserted |= 1 << b
			if found {
				copied |= 1 << b
			}
		}
	}
	s.rows[r].inserted, s.copied[r] = inserted, copied
}

// carryOver decides which records carry over the labels of their copied keys. On a GPU, it is a prefix sum over the numbers of labels.
func (s *step) carryOver() {
	for i := range s.rows {
		r, first := &s.rows[i], len(s.carried)
		r.carried = s.carried[first:]
		for set := s.copied[i]; set != 0; set &= set - 1 {
			b := bits.TrailingZeros64(set)
			label := s.old.positions[s.former[i*s.parameters.Bands+b]]
			k := slices.IndexFunc(r.carried, func(c carry) bool { return c.label == label })
			if k < 0 {
				k = len(r.carried)
				r.carried = append(r.carried, carry{label: label})
			}
			r.carried[k].bands |= 1 << b
		}
		r.carries = len(r.carried)
		s.young.carried += r.carries
		if r.relabeled = r.carries > 0 && s.young.carried > s.parameters.Records; r.relabeled {
			r.carried = nil
		}
		s.carried = s.carried[:first+len(r.carried)]
	}
}

// hit returns the label that record r finds for the key of band b. ok is false if the key is new. depends is true if an earlier record of
// the batch determines the label, which is then final only after settle.
func (s *step) hit(r, b int) (label Position, depends, ok bool) {
	i := r*s.parameters.Bands + b
	if s.found[i] < s.firstLabel {
		return s.young.positions[s.found[i]], false, true
	}
	first := int(s.found[i] - s.firstLabel)
	if s.former[i] != absent && (first == r || !s.rows[first].relabeled) {
		return s.old.positions[s.former[i]], false, true
	}
	return s.rows[first].label, true, first != r
}

// guess sets a record's label to the least label of its hits that is already known, or to its position. settle lowers it if necessary.
func (s *step) guess(r int) {
	waits := false
	least := s.rows[r].position
	for b := range s.parameters.Bands {
		label, depends, ok := s.hit(r, b)
		switch {
		case ok && depends:
			waits = true
		case ok && label.Compare(least) < 0:
			least = label
		}
	}
	s.rows[r].label = least
	if waits {
		s.waiting = append(s.waiting, int32(r))
	}
}

// settle lowers labels until none changes. The result is unique, because a record depends only on earlier records. If records are visited
// in order, the second round changes nothing.
func (s *step) settle() {
	for changed := true; changed; {
		changed = false
		s.each(len(s.waiting), func(w int) {
			r := s.waiting[w]
			for b := range s.parameters.Bands {
				if label, _, ok := s.hit(int(r), b); ok && label.Compare(s.rows[r].label) < 0 {
					s.rows[r].label = label
					changed = true
				}
			}
		})
	}
}

// finish returns the verdict on a record.
func (s *step) finish(r int) Verdict {
	v := Verdict{}
	first := len(s.also)
	for b := range s.parameters.Bands {
		label, _, ok := s.hit(r, b)
		if !ok {
			continue
		}
		v.Bands++
		if i, found := slices.BinarySearchFunc(s.also[first:], label, Position.Compare); !found && label != s.rows[r].label {
			s.also = slices.Insert(s.also, first+i, label)
		}
	}
	if v.Bands > 0 {
		v.DuplicateOf, v.Also = s.rows[r].label, s.also[first:len(s.also):len(s.also)]
	}
	return v
}

// store writes the labels of all records, and the labels of the keys that were copied. It collects the keys that the records inserted.
func (s *step) store(firstCarried int) {
	bands := s.parameters.Bands
	for i := range s.rows {
		r, first := &s.rows[i], len(s.newKeys)
		s.young.positions[s.firstLabel+uint32(i)] = r.label
		for set := r.inserted; set != 0; set &= set - 1 {
			s.newKeys = binary.LittleEndian.AppendUint64(s.newKeys, s.keys[i*bands+bits.TrailingZeros64(set)])
		}
		r.keys = s.newKeys[first:]
		for k, c := range r.carried {
			s.young.positions[firstCarried+k] = c.label
			for set := c.bands; set != 0; set &= set - 1 {
				s.young.labels[s.slots[i*bands+bits.TrailingZeros64(set)]] = uint32(firstCarried + k)
			}
		}
		firstCarried += r.carries
	}
}
