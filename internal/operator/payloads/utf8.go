package payloads

import "bytes"

// InvalidUTF8 returns payloads that are not valid UTF-8: one for each kind of error, and one for each kind in the
// middle of text. For an operator, every byte that is not 10xxxxxx starts a character.
func InvalidUTF8(seed uint64) [][]byte {
	const continuation = "\x80"
	mistakes := []string{
		continuation,                       // without a start byte
		continuation + "a",                 // at the start
		"a" + continuation,                 // after a character that takes no continuation
		"\xBF\xBF\xBF\xBF\xBF",             // only continuation bytes
		"\xC3",                             // a start without its continuation
		"\xE2\x82",                         // cut off
		"\xF0\x9F\x8C",                     // cut off after three of four bytes
		"\xC0\xAF",                         // overlong
		"\xE0\x80\xAF",                     // overlong, three bytes
		"\xED\xA0\x80\xED\xB0\x80",         // surrogates
		"\xF4\x90\x80\x80",                 // above the last code point
		"\xF8\x88\x80\x80\x80",             // five bytes, never valid
		"\xFE\xFF",                         // a byte order mark of UTF-16
		"\xFF\xFF\xFF\xFF",                 // never a start byte
		"\xC3\xC3\xC3\xA9",                 // start bytes that interrupt each other
		"\x00\x00\x00",                     // valid UTF-8
		"\x7F\x80\xBF\xC0",                 // both sides of each boundary
		"abc\x80\x80\x80def\x80ghi",        // stray continuation bytes
		"\xE6\xB0\xB4\x80\xE8\xBB\x8A\x80", // one continuation byte too many
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

// fewKinds returns random bytes with varying shares of continuation bytes, start bytes and ASCII.
func fewKinds(g *generator) [][]byte {
	var payloads [][]byte
	for continuations := range 8 { // eighths
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

// LongCharacters returns payloads with characters that are runs of continuation bytes. Their lengths are around the
// powers of two at which devices split rows. A shingle then spans several blocks or pieces, and in some pieces no
// character starts.
func LongCharacters(seed uint64) [][]byte {
	g := newGenerator(seed)
	var payloads [][]byte
	for _, run := range []int{15, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 4095, 4096, 4097} {
		characters := min(40, 32<<10/run)
		payloads = append(payloads, runs(g, characters, run))
	}
	payloads = append(payloads,
		bytes.Repeat([]byte{0x80}, 20000), // a single character without a start byte
		append(bytes.Repeat([]byte{0x80}, 10000), "and then text, long enough to shingle"...), // its first character starts at byte 0
		append(Text(g.next(), 9000), bytes.Repeat([]byte{0xBF}, 9000)...),                     // the last character is long
		bytes.Join([][]byte{Text(g.next(), 5000), runs(g, 3, 5000), Text(g.next(), 5000)}, nil),
	)
	return payloads
}

// runs returns characters that consist of one start byte and run continuation bytes each.
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
