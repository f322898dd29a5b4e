package jsonfield

import "encoding/binary"

// This file validates UTF-8 with a finite automaton, which has no branch per character. Processors can't predict such branches if
// characters have different lengths. For such texts, utf8.Valid takes up to three times as long.

const stateBits = 6

// These are the states of the automaton. A state's value is the position of its 6 bits in each word of transitions.
const (
	stateInvalid = iota * stateBits // never left
	stateStart                      // at the start of a character
	stateOne                        // before the last byte of a character
	stateTwo                        // before the last two bytes
	stateThree                      // before the last three bytes
	stateE0                         // after a first byte that restricts the second byte
	stateED
	stateF0
	stateF4
)

// transitions has a word for each byte. The bits at a state's position are the next state.
var transitions = newTransitions()

func newTransitions() (t [256]uint64) {
	add := func(from, to uint64, first, last int) {
		for b := first; b <= last; b++ {
			t[b] |= to << from
		}
	}
	add(stateStart, stateStart, 0x00, 0x7f)
	add(stateStart, stateOne, 0xc2, 0xdf)
	add(stateStart, stateTwo, 0xe1, 0xef)
	add(stateStart, stateThree, 0xf1, 0xf3)
	add(stateOne, stateStart, 0x80, 0xbf)
	add(stateTwo, stateOne, 0x80, 0xbf)
	add(stateThree, stateTwo, 0x80, 0xbf)

	t[0xed] = 0 // surrogates also begin with this byte
	add(stateStart, stateE0, 0xe0, 0xe0)
	add(stateStart, stateED, 0xed, 0xed)
	add(stateStart, stateF0, 0xf0, 0xf0)
	add(stateStart, stateF4, 0xf4, 0xf4)
	add(stateE0, stateOne, 0xa0, 0xbf)
	add(stateED, stateOne, 0x80, 0x9f)
	add(stateF0, stateTwo, 0x90, 0xbf)
	add(stateF4, stateTwo, 0x80, 0x8f)
	return t
}

// isUTF8 reports whether text is valid UTF-8.
func isUTF8(text []byte) bool {
	const mask = 1<<stateBits - 1
	state := uint64(stateStart)
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		if w&highs == 0 && state&mask == stateStart {
			continue
		}
		state = transitions[byte(w)] >> (state & mask)
		state = transitions[byte(w>>8)] >> (state & mask)
		state = transitions[byte(w>>16)] >> (state & mask)
		state = transitions[byte(w>>24)] >> (state & mask)
		state = transitions[byte(w>>32)] >> (state & mask)
		state = transitions[byte(w>>40)] >> (state & mask)
		state = transitions[byte(w>>48)] >> (state & mask)
		state = transitions[byte(w>>56)] >> (state & mask)
	}
	for _, b := range text {
		state = transitions[b] >> (state & mask)
	}
	return state&mask == stateStart
}
