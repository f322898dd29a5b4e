package quality

import "strings"

// phrase is Lorem or one of Policies. Its first word is separate, because the search for a phrase starts where a word ends.
type phrase struct {
	first   string // the first word
	rest    string // a space and the other words
	isLorem bool
}

// phraseTable lists the phrases by the last two letters of their first words.
type phraseTable struct {
	next    [1024]uint32 // for each key, a bit for each character that may follow the first space, modulo 32
	phrases [1024][]phrase
}

// phraseKey returns the key of two letters, ignoring case. Other bytes have keys too.
func phraseKey(a, b byte) int { return int(a&31)<<5 | int(b&31) }

func newPhraseTable() *phraseTable {
	t := new(phraseTable)
	add := func(text string, isLorem bool) {
		first, _, _ := strings.Cut(text, " ")
		key := phraseKey(first[len(first)-2], first[len(first)-1])
		t.next[key] |= 1 << (text[len(first)+1] & 31)
		t.phrases[key] = append(t.phrases[key], phrase{first: first, rest: text[len(first):], isLorem: isLorem})
	}
	for _, p := range Policies {
		add(p, false)
	}
	add(Lorem, true)
	return t
}

// kelvin is the Kelvin sign, whose lower case is k.
const kelvin = "\u212A"

// matches reports whether the phrase's first word ends at position end of text, and the rest of the phrase follows, ignoring case.
func (p *phrase) matches(text []byte, end int) bool {
	at := end
	for i := range len(p.rest) {
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

// lower returns an ASCII letter in lower case, and any other byte unchanged.
func lower(b byte) byte {
	if b-'A' < 26 {
		return b + 'a' - 'A'
	}
	return b
}

// findPhrases notes the phrases whose first word ends at position end of the text, where a space (U+0020) is.
func (s *scan) findPhrases(end int) {
	if end < 2 || end+1 >= len(s.text) {
		return
	}
	p, key := s.tables.phrases, phraseKey(s.text[end-2], s.text[end-1])
	if p.next[key]>>(s.text[end+1]&31)&1 != 0 {
		s.matchPhrases(p.phrases[key], end)
	}
}

// matchPhrases notes which of the phrases occur at that position.
func (s *scan) matchPhrases(phrases []phrase, end int) {
	for i := range phrases {
		switch p := &phrases[i]; {
		case p.isLorem && !s.hasLorem:
			s.hasLorem = p.matches(s.text, end)
		case !p.isLorem && !s.hasPolicy:
			s.hasPolicy = p.matches(s.text, end)
		}
	}
}
