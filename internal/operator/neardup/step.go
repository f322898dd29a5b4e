package neardup

import "slices"

// step applies consecutive records of one generation to its table at once. It has four parts, as on a GPU: probe, gather, settle and finish.
// In each part the order of keys or records doesn't matter, except where a GPU computes a prefix sum.
//
// A record's number in the batch is added to firstLabel, which gives its label. So a label below firstLabel was in the table before the batch,
// and any other label names the first record of the batch that has the key.
type step struct {
	parameters Parameters
	young, old *generation
	firstLabel uint32
	keys       []uint64 // of all records, by record and band
	scratch
	*changes // what the step computes, by record

	shuffle func(n int, visit func(int)) // visits 0 to n-1 in another order, in tests
}

// scratch is the memory of a step that isn't needed afterwards, except for slots. Its elements are by record and band, unless stated otherwise.
type scratch struct {
	slots   []int      // the key's slot in the young generation
	former  []uint32   // the key's label in the old generation, if it was absent from the young one; otherwise absent
	waiting []int32    // numbers of records whose label depends on records of the same batch
	also    []Position // memory of the verdicts' lists
}

// absent is the label of a key that isn't in the old generation.
const absent = 1<<32 - 1

// run applies the records and writes their verdicts.
func (s *step) run(verdicts []Verdict) {
	n, firstCarried := len(s.positions), s.young.carried
	s.waiting = s.waiting[:0]
	s.each(len(s.keys), s.probe)
	s.each(n, s.gather)
	s.carryOver()
	s.each(n, s.guess)
	s.settle()
	s.each(n, func(r int) { verdicts[r] = s.finish(r) })
	s.store(firstCarried)
}

// each calls visit with all numbers below n.
func (s *step) each(n int, visit func(int)) {
	if s.shuffle != nil {
		s.shuffle(n, visit)
		return
	}
	for i := range n {
		visit(i)
	}
}

// probe finds a key in the young generation, or inserts it. The least label wins, which is an atomic minimum on a GPU.
func (s *step) probe(i int) {
	own := s.firstLabel + uint32(i/s.parameters.Bands)
	slot, found := s.young.find(s.keys[i])
	if !found {
		s.young.keys[slot], s.young.labels[slot] = s.keys[i], own
	}
	s.young.labels[slot] = min(s.young.labels[slot], own)
	s.slots[i] = slot
}

// gather looks up a record's keys in the old generation, unless the young one had them before, and notes which keys the record inserted.
func (s *step) gather(r int) {
	s.inserted[r], s.copied[r] = 0, 0
	for b := range s.parameters.Bands {
		i := r*s.parameters.Bands + b
		label := s.young.labels[s.slots[i]]
		s.former[i] = absent
		if label < s.firstLabel {
			continue
		}
		slot, found := s.old.find(s.keys[i])
		if found {
			s.former[i] = s.old.labels[slot]
		}
		if label == s.firstLabel+uint32(r) {
			s.inserted[r] |= 1 << b
			if found {
				s.copied[r] |= 1 << b
			}
		}
	}
}

// carryOver decides which records carry over the labels of their copied keys. On a GPU this is a prefix sum over the numbers of labels.
func (s *step) carryOver() {
	for r, copied := range s.copied {
		first := len(s.carried)
		for b := range s.parameters.Bands {
			if copied&(1<<b) == 0 {
				continue
			}
			label := s.old.positions[s.former[r*s.parameters.Bands+b]]
			i := first + slices.IndexFunc(s.carried[first:], func(c carry) bool { return c.label == label })
			if i < first {
				i = len(s.carried)
				s.carried = append(s.carried, carry{label: label})
			}
			s.carried[i].bands |= 1 << b
		}
		s.carries[r] = len(s.carried) - first
		s.young.carried += s.carries[r]
		s.relabeled[r] = copied != 0 && s.young.carried > s.parameters.Records
		if s.relabeled[r] {
			s.carried = s.carried[:first]
		}
	}
}

// hit returns the label that record r finds for the key of band b. ok is false if the key is new. If the label is that of an earlier record of
// the batch, it is known when settle ends, and depends is true.
func (s *step) hit(r, b int) (label Position, depends, ok bool) {
	i := r*s.parameters.Bands + b
	index := s.young.labels[s.slots[i]]
	if index < s.firstLabel {
		return s.young.positions[index], false, true
	}
	first := int(index - s.firstLabel)
	if s.former[i] != absent && (first == r || !s.relabeled[first]) {
		return s.old.positions[s.former[i]], false, true
	}
	return s.labels[first], true, first != r
}

// guess computes the least label of a record's hits that are known already, or its position. The others are left to settle.
func (s *step) guess(r int) {
	waits := false
	least := s.positions[r]
	for b := range s.parameters.Bands {
		label, depends, ok := s.hit(r, b)
		switch {
		case ok && depends:
			waits = true
		case ok && label.Compare(least) < 0:
			least = label
		}
	}
	s.labels[r] = least
	if waits {
		s.waiting = append(s.waiting, int32(r))
	}
}

// settle lowers labels until none changes. There is one such state, because a record depends on earlier records only. If records are visited in
// order, the second round changes nothing.
func (s *step) settle() {
	for changed := true; changed; {
		changed = false
		s.each(len(s.waiting), func(w int) {
			r := s.waiting[w]
			for b := range s.parameters.Bands {
				if label, _, ok := s.hit(int(r), b); ok && label.Compare(s.labels[r]) < 0 {
					s.labels[r] = label
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
		if i, found := slices.BinarySearchFunc(s.also[first:], label, Position.Compare); !found && label != s.labels[r] {
			s.also = slices.Insert(s.also, first+i, label)
		}
	}
	if v.Bands > 0 {
		v.DuplicateOf, v.Also = s.labels[r], s.also[first:len(s.also):len(s.also)]
	}
	return v
}

// store writes the labels of all records, of which those of kept copies are new, and collects the keys that the records inserted.
func (s *step) store(firstCarried int) {
	bands, carried := s.parameters.Bands, s.carried
	for r, inserted := range s.inserted {
		s.young.positions[s.firstLabel+uint32(r)] = s.labels[r]
		for b := range bands {
			if inserted&(1<<b) != 0 {
				s.newKeys = append(s.newKeys, s.keys[r*bands+b])
			}
		}
		if s.carries[r] == 0 || s.relabeled[r] {
			continue
		}
		for _, c := range carried[:s.carries[r]] {
			s.young.positions[firstCarried] = c.label
			for b := range bands {
				if c.bands&(1<<b) != 0 {
					s.young.labels[s.slots[r*bands+b]] = uint32(firstCarried)
				}
			}
			firstCarried++
		}
		carried = carried[s.carries[r]:]
	}
}
