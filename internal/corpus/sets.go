package corpus

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// Set is a list of payloads that form one batch or several consecutive batches.
type Set struct {
	Name     string // name of a subtest
	Payloads [][]byte
}

// Sets returns all sets, about 4 MB in total.
func Sets(seed uint64) []Set {
	return []Set{
		{"empties", Empties(8192)},
		{"lengths", Lengths(seed, 300)},
		{"text lengths", TextLengths(seed, 300)},
		{"invalid utf-8", InvalidUTF8(seed)},
		{"long characters", LongCharacters(seed)},
		{"one megabyte", [][]byte{Text(seed, 1<<20)}},
		{"megabyte among small", LongAmongShort(seed, 1<<20, 512)},
		{"mixed", Mixed(seed)},
		{"one byte", OneByte()},
		{"page boundaries", PageBoundaries(seed)},
		{"repeated words", RepeatedWords(seed)},
	}
}

// Adversarial returns one list of all payloads of Sets that are shorter than a megabyte. The list has about 1 MB.
func Adversarial(seed uint64) [][]byte {
	var all [][]byte
	for _, set := range Sets(seed) {
		for _, payload := range set.Payloads {
			if len(payload) < 1<<20 {
				all = append(all, payload)
			}
		}
	}
	return all
}

// Empties returns n empty payloads.
func Empties(n int) [][]byte {
	return make([][]byte, n)
}

// OneByte returns a payload of one byte for each of the 256 byte values.
func OneByte() [][]byte {
	payloads := make([][]byte, 256)
	for i := range payloads {
		payloads[i] = []byte{byte(i)}
	}
	return payloads
}

// PageBoundaries returns payloads that end within one byte of a multiple of 4 KiB or 64 KiB from the start of the batch. It also returns
// payloads whose length is within one byte of 4 KiB or 64 KiB. Payloads of 1 to 3 bytes lie between them.
func PageBoundaries(seed uint64) [][]byte {
	g := &Random{State: seed}
	var payloads [][]byte
	end := 0
	add := func(n int) {
		payloads = append(payloads, Bytes(g.Next(), n))
		end += n
	}
	for _, page := range []int{4 << 10, 64 << 10} {
		for _, from := range []int{-1, 0, 1} {
			add(page - end%page + from) // payload that ends near the boundary
			add(1 + g.Below(3))
			add(page + from)
		}
	}
	return payloads
}

// Lengths returns one payload of random bytes for each length from 0 to longest.
func Lengths(seed uint64, longest int) [][]byte { return lengths(Bytes, seed, longest) }

// TextLengths returns one payload of text for each length from 0 to longest.
func TextLengths(seed uint64, longest int) [][]byte { return lengths(Text, seed, longest) }

func lengths(generate func(seed uint64, n int) []byte, seed uint64, longest int) [][]byte {
	payloads := make([][]byte, longest+1)
	for n := range payloads {
		payloads[n] = generate(seed+uint64(n), n)
	}
	return payloads
}

// LongAmongShort returns one long text in the middle of short texts. long is the size of the long text in bytes. short is the number of
// short texts, which have 0 to 63 bytes each. On a device that doesn't split rows, a batch of these payloads leaves most cores idle.
func LongAmongShort(seed uint64, long, short int) [][]byte {
	g := &Random{State: seed}
	var payloads [][]byte
	for i := range short {
		if i == short/2 {
			payloads = append(payloads, Text(g.Next(), long))
		}
		payloads = append(payloads, Text(g.Next(), g.Below(64)))
	}
	return payloads
}

// Mixed returns 200 payloads of up to 64 KiB between two empty payloads. They alternate between text and random bytes.
// Their lengths are spread evenly over the powers of two.
func Mixed(seed uint64) [][]byte {
	g := &Random{State: seed}
	payloads := [][]byte{{}}
	for i := range 200 {
		n := g.Below(2 << g.Below(16))
		if i%2 == 0 {
			payloads = append(payloads, Text(g.Next(), n))
		} else {
			payloads = append(payloads, Bytes(g.Next(), n))
		}
	}
	return append(payloads, []byte{})
}

// InvalidUTF8 returns each kind of invalid UTF-8 alone and in the middle of a text, and random mixtures of byte
// classes. Operators treat every byte that is not 10xxxxxx as the start of a character.
func InvalidUTF8(seed uint64) [][]byte {
	const continuation = "\x80"
	mistakes := []string{
		continuation,                       // without a start byte
		continuation + "a",                 // continuation byte before a character
		"a" + continuation,                 // continuation byte after an ASCII character
		"\xBF\xBF\xBF\xBF\xBF",             // only continuation bytes
		"\xC3",                             // start byte without its continuation byte
		"\xE2\x82",                         // cut off after two of three bytes
		"\xF0\x9F\x8C",                     // cut off after three of four bytes
		"\xC0\xAF",                         // overlong encoding in two bytes
		"\xE0\x80\xAF",                     // overlong encoding in three bytes
		"\xED\xA0\x80\xED\xB0\x80",         // surrogates
		"\xF4\x90\x80\x80",                 // code point above U+10FFFF
		"\xF8\x88\x80\x80\x80",             // five bytes, which are never valid
		"\xFE\xFF",                         // a byte order mark of UTF-16
		"\xFF\xFF\xFF\xFF",                 // bytes that are never start bytes
		"\xC3\xC3\xC3\xA9",                 // start bytes that interrupt each other
		"\x00\x00\x00",                     // valid UTF-8
		"\x7F\x80\xBF\xC0",                 // bytes on both sides of each boundary between classes
		"abc\x80\x80\x80def\x80ghi",        // stray continuation bytes
		"\xE6\xB0\xB4\x80\xE8\xBB\x8A\x80", // one continuation byte too many
	}
	var payloads [][]byte
	for _, mistake := range mistakes {
		payloads = append(payloads, []byte(mistake))
	}
	g := &Random{State: seed}
	for _, mistake := range mistakes {
		text := Text(g.Next(), 200+g.Below(200))
		at := g.Below(len(text))
		payloads = append(payloads, bytes.Join([][]byte{text[:at], []byte(mistake), text[at:]}, nil))
	}
	return append(payloads, fewKinds(g)...)
}

// fewKinds returns random bytes with varying shares of continuation bytes, start bytes and ASCII.
func fewKinds(g *Random) [][]byte {
	var payloads [][]byte
	for continuations := range 8 { // share of continuation bytes, in eighths
		payload := make([]byte, 700+g.Below(700))
		for i := range payload {
			switch {
			case g.Below(8) < continuations:
				payload[i] = 0x80 | byte(g.Below(64))
			case g.Below(2) == 0:
				payload[i] = 0xC0 | byte(g.Below(64))
			default:
				payload[i] = byte(g.Below(128))
			}
		}
		payloads = append(payloads, payload)
	}
	return payloads
}

// RepeatedWords returns texts of so few different words that sequences of up to ten words are repeated. Two texts are longer than the tiles
// into which devices divide rows.
func RepeatedWords(seed uint64) [][]byte {
	g := &Random{State: seed}
	words := []string{"a", "aa", "ab", "the", "\u00E9t\u00E9", "\u6C34\u8ECA", "b.", strings.Repeat("long", 20)}
	separators := []string{" ", " ", " ", "\n", "\n\n", "  ", "\u2003"}
	text := func(different, n int) []byte {
		var b bytes.Buffer
		for range n {
			b.WriteString(words[g.Below(different)])
			b.WriteString(separators[g.Below(len(separators))])
		}
		return b.Bytes()
	}
	var payloads [][]byte
	for i := range 160 {
		payloads = append(payloads, text(1+i%len(words), g.Below(2+i)))
	}
	return append(payloads, text(3, 10_000), text(8, 6000))
}

// LongCharacters returns payloads whose characters contain long runs of continuation bytes. The runs' lengths are close to the powers of
// two where devices split rows. A shingle then spans several pieces, and no character starts in some pieces.
func LongCharacters(seed uint64) [][]byte {
	g := &Random{State: seed}
	var payloads [][]byte
	for _, run := range []int{15, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 4095, 4096, 4097} {
		characters := min(40, 32<<10/run)
		payloads = append(payloads, runs(g, characters, run))
	}
	payloads = append(payloads,
		bytes.Repeat([]byte{0x80}, 20000), // a single character without a start byte
		append(bytes.Repeat([]byte{0x80}, 10000), "and then text, long enough to shingle"...), // its first character starts at byte 0
		append(Text(g.Next(), 9000), bytes.Repeat([]byte{0xBF}, 9000)...),                     // the last character is long
		bytes.Join([][]byte{Text(g.Next(), 5000), runs(g, 3, 5000), Text(g.Next(), 5000)}, nil),
	)
	return payloads
}

// runs returns characters that each consist of one start byte and run continuation bytes.
func runs(g *Random, characters, run int) []byte {
	var payload []byte
	for range characters {
		payload = append(payload, 0xC0|byte(g.Below(64)))
		for range run {
			payload = append(payload, 0x80|byte(g.Below(64)))
		}
	}
	return payload
}

// Pack converts payloads to a ragged batch. rows holds the payloads back to back, and offsets has one more entry than
// there are payloads. Pack panics above 4 GiB, which 32-bit offsets can't represent.
func Pack(payloads [][]byte) (rows []byte, offsets []uint32) {
	rows = bytes.Join(payloads, nil)
	if uint64(len(rows)) > math.MaxUint32 {
		panic(fmt.Sprintf("corpus: %d bytes do not fit a batch", len(rows)))
	}
	offsets = make([]uint32, 1, len(payloads)+1)
	var end uint32
	for _, payload := range payloads {
		end += uint32(len(payload))
		offsets = append(offsets, end)
	}
	return rows, offsets
}
