package quality

import "strings"

// phrase is one of Policies, or Lorem. Its first word and the rest are apart, because a phrase is searched at the end of a word.
type phrase struct {
	first   string // the first word
	rest    string // a space and the other words
	isLorem bool
}

// phraseTable has the phrases by the last two letters of their first words.
type phraseTable struct {
	lists   [1024]uint8 // number of the list for a key
	phrases [][]phrase  // list 0 is empty
}

// phraseKey returns the key of two letters of any case. Other bytes have keys too.
func phraseKey(a, b byte) int { return int(a&31)<<5 | int(b&31) }

func newPhraseTable() (t phraseTable) {
	t.phrases = make([][]phrase, 1)
	add := func(text string, isLorem bool) {
		first, _, _ := strings.Cut(text, " ")
		key := phraseKey(first[len(first)-2], first[len(first)-1])
		if t.lists[key] == 0 {
			t.lists[key] = uint8(len(t.phrases))
			t.phrases = append(t.phrases, nil)
		}
		list := &t.phrases[t.lists[key]]
		*list = append(*list, phrase{first: first, rest: text[len(first):], isLorem: isLorem})
	}
	for _, p := range Policies {
		add(p, false)
	}
	add(Lorem, true)
	return t
}

// kelvin is the Kelvin sign, whose lower case is k.
const kelvin = "\u212A"

// matches reports whether the phrase's first word ends at position end of text, in any case, and the rest of the phrase follows.
func (p *phrase) matches(text []byte, end int) bool {
	at := end
	for i := 0; i < len(p.rest); i++ {
		switch {
		case at < len(text) && lower(text[at]) == p.rest[i]:
			at++
		case p.rest[i] == 'k' && len(text)-at >= len(kelvin) && string(text[at:at+len(kelvin)]) == kelvin:
			at += len(kelvin)
		default:
			return false
		}
	}
	at = end
	for i := len(p.first) - 1; i >= 0; i-- {
		switch {
		case at > 0 && lower(text[at-1]) == p.first[i]:
			at--
		case p.first[i] == 'k' && at >= len(kelvin) && string(text[at-len(kelvin):at]) == kelvin:
			at -= len(kelvin)
		default:
			return false
		}
	}
	return true
}

// lower returns the lower case of an ASCII letter, and other bytes unchanged.
func lower(b byte) byte {
	if b-'A' < 26 {
		return b + 'a' - 'A'
	}
	return b
}

// findPhrases notes the phrases whose first word ends at position end of the text. A space (U+0020) is there, after at least two bytes
// of a word.
func (s *scan) findPhrases(end int) {
	p := &s.tables.phrases
	list := p.lists[phraseKey(s.text[end-2], s.text[end-1])]
	if list == 0 {
		return
	}
	for i := range p.phrases[list] {
		switch f := &p.phrases[list][i]; {
		case f.isLorem && !s.hasLorem:
			s.hasLorem = f.matches(s.text, end)
		case !f.isLorem && !s.hasPolicy:
			s.hasPolicy = f.matches(s.text, end)
		}
	}
}
