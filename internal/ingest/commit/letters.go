package commit

import (
	"cmp"
	"slices"
)

// Letters lists the inputs with stored dead letters, in the order of their sequences. A marker lists only inputs above
// its position, because the results of inputs before them might not be stored yet.
type Letters []InputLetters

// InputLetters describes the stored dead letters of one input.
type InputLetters struct {
	Position
	Whole   bool   `json:"whole,omitempty"`   // whether the dead letter of the whole message is stored
	Records []byte `json:"records,omitempty"` // bit set of a frame's records with a stored dead letter, lowest bit first
}

// Letter is one dead letter.
type Letter struct {
	Input  Position
	Record int // index of the record in its frame; WholeMessage for the dead letter of the message
}

// WholeMessage is the Record of a dead letter that contains the whole message.
const WholeMessage = -1

// find returns the index of an input and true, or the index at which to insert the input and false.
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

// add returns a copy of l with more letters.
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

// above returns the entries of l that p doesn't cover.
func (l Letters) above(p Position) Letters {
	return slices.DeleteFunc(slices.Clone(l), func(in InputLetters) bool { return p.Covers(in.Position) })
}
