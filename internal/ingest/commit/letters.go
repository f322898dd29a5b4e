package commit

import (
	"cmp"
	"slices"
)

// Letters says for which inputs dead letters are stored, in the order of their sequences. A marker has those above its position: the
// results of inputs around them may not be stored yet.
type Letters []InputLetters

// InputLetters says which dead letters of one input are stored.
type InputLetters struct {
	Position
	Whole   bool   `json:"whole,omitempty"`   // that of the whole message
	Records []byte `json:"records,omitempty"` // those of single records of a frame: a bit for each record, the lowest bit of a byte first
}

// Letter is one dead letter.
type Letter struct {
	Input  Position
	Record int // index of the record in its frame; WholeMessage for the dead letter of the message
}

// WholeMessage is the Record of a dead letter that has the whole message.
const WholeMessage = -1

// find returns the index of an input, or where to insert it.
func (l Letters) find(in Position) (int, bool) {
	return slices.BinarySearchFunc(l, in, func(a InputLetters, b Position) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Stored, b.Stored))
	})
}

// Has reports whether a dead letter is stored.
func (l Letters) Has(letter Letter) bool {
	i, found := l.find(letter.Input)
	if !found || letter.Record == WholeMessage {
		return found && l[i].Whole
	}
	at := letter.Record / 8
	return at < len(l[i].Records) && l[i].Records[at]&(1<<(letter.Record%8)) != 0
}

// add returns l with more letters. It doesn't change l.
func (l Letters) add(more []Letter) Letters {
	all := slices.Clone(l)
	for i := range all {
		all[i].Records = slices.Clone(all[i].Records)
	}
	for _, letter := range more {
		i, found := all.find(letter.Input)
		if !found {
			all = slices.Insert(all, i, InputLetters{Position: letter.Input})
		}
		if letter.Record == WholeMessage {
			all[i].Whole = true
			continue
		}
		if missing := letter.Record/8 + 1 - len(all[i].Records); missing > 0 {
			all[i].Records = append(all[i].Records, make([]byte, missing)...)
		}
		all[i].Records[letter.Record/8] |= 1 << (letter.Record % 8)
	}
	return all
}

// above returns the letters of inputs that p doesn't cover.
func (l Letters) above(p Position) Letters {
	return slices.DeleteFunc(slices.Clone(l), func(in InputLetters) bool { return p.Covers(in.Position) })
}
