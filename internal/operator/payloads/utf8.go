package payloads

import "bytes"

// InvalidUTF8 is payloads that are no UTF-8, one kind of mistake each, and then each kind again in the middle
// of text. To an operator every byte that is not 10xxxxxx starts a character.
func InvalidUTF8(seed uint64) [][]byte {
	const continuation = "\x80"
	mistakes := []string{
		continuation,                       // alone
		continuation + "a",                 // in front
		"a" + continuation,                 // behind a character that takes none
		"\xBF\xBF\xBF\xBF\xBF",             // nothing else
		"\xC3",                             // a start without its continuation
		"\xE2\x82",                         // cut off
		"\xF0\x9F\x8C",                     // cut off later
		"\xC0\xAF",                         // overlong
		"\xE0\x80\xAF",                     // overlong in three
		"\xED\xA0\x80\xED\xB0\x80",         // surrogates
		"\xF4\x90\x80\x80",                 // above the last code point
		"\xF8\x88\x80\x80\x80",             // five bytes, never allowed
		"\xFE\xFF",                         // a byte order mark of UTF-16
		"\xFF\xFF\xFF\xFF",                 // never a start
		"\xC3\xC3\xC3\xA9",                 // starts that break each other off
		"\x00\x00\x00",                     // valid, and yet
		"\x7F\x80\xBF\xC0",                 // both sides of each boundary
		"abc\x80\x80\x80def\x80ghi",        // strays
		"\xE6\xB0\xB4\x80\xE8\xBB\x8A\x80", // a continuation too many
	}
	var payloads [][]byte
	for _, mistake := range mistakes {
		payloads = append(payloads, []byte(mistake))
	}
	g := newGenerator(seed)
	for _, mistake := range mistakes {
		text := Text(g.next(), 200+g.below(200))
		at := g.below(len(text))
		payloads = append(payloads, bytes.Join([][]byte{text[:at], []byte(mistake), text[at:]}, nil))
	}
	return append(payloads, fewKinds(g)...)
}

// fewKinds is random bytes that are continuations, starts and ASCII in various shares.
func fewKinds(g *generator) [][]byte {
	var payloads [][]byte
	for continuations := range 8 { // of 8
		payload := make([]byte, 700+g.below(700))
		for i := range payload {
			switch {
			case g.below(8) < continuations:
				payload[i] = 0x80 | byte(g.below(64))
			case g.below(2) == 0:
				payload[i] = 0xC0 | byte(g.below(64))
			default:
				payload[i] = byte(g.below(128))
			}
		}
		payloads = append(payloads, payload)
	}
	return payloads
}

// LongCharacters is payloads whose characters are runs of continuation bytes, of lengths around the powers of
// two that devices cut rows at: a shingle then lies across several blocks or pieces, and some pieces have no
// start of a character at all.
func LongCharacters(seed uint64) [][]byte {
	g := newGenerator(seed)
	var payloads [][]byte
	for _, run := range []int{15, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 4095, 4096, 4097} {
		characters := min(40, 32<<10/run)
		payloads = append(payloads, runs(g, characters, run))
	}
	payloads = append(payloads,
		bytes.Repeat([]byte{0x80}, 20000), // one character, with no start at all
		append(bytes.Repeat([]byte{0x80}, 10000), "and then text, long enough to shingle"...), // its start is byte 0
		append(Text(g.next(), 9000), bytes.Repeat([]byte{0xBF}, 9000)...),                     // the last character is long
		bytes.Join([][]byte{Text(g.next(), 5000), runs(g, 3, 5000), Text(g.next(), 5000)}, nil),
	)
	return payloads
}

// runs is characters of one start and run continuation bytes each.
func runs(g *generator, characters, run int) []byte {
	var payload []byte
	for range characters {
		payload = append(payload, 0xC0|byte(g.below(64)))
		for range run {
			payload = append(payload, 0x80|byte(g.below(64)))
		}
	}
	return payload
}
