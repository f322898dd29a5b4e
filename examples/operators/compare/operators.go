package main

import (
	"encoding/binary"
	"math/bits"
	"regexp"

	ahocorasick "github.com/petar-dambovaliev/aho-corasick"
	zeebo "github.com/zeebo/blake3"
	champine "lukechampine.com/blake3"
)

// ---- entropy, with 4 bits ----

func entropies() []implementation {
	return []implementation{
		ownEntropy.implementation("entropy", 4, 0),
		{"entropy", "Go, 4 tables", perRecord(peak)},
		fastEntropyTables.implementation("entropy", "C++, 8 tables", nil),
		fastEntropyVectors.implementation("entropy", "C++, vectors", nil),
	}
}

// peak counts in four tables, so that equal bytes in a row don't wait for each other.
func peak(record []byte) uint64 {
	var a, b, c, d [256]uint32
	for len(record) >= 4 {
		a[record[0]]++
		b[record[1]]++
		c[record[2]]++
		d[record[3]]++
		record = record[4:]
	}
	for _, x := range record {
		a[x]++
	}
	var bins [16]uint32
	for i := range 256 {
		bins[i/16] += a[i] + b[i] + c[i] + d[i]
	}
	most := uint32(0)
	for _, n := range bins {
		most = max(most, n)
	}
	return uint64(most)
}

// ---- blake3 ----

func blake3s() []implementation {
	return []implementation{
		ownBlake3.implementation("blake3", 32, 0),
		{"blake3", "zeebo/blake3", perRecord(func(record []byte) uint64 {
			hash := zeebo.Sum256(record)
			return binary.LittleEndian.Uint64(hash[:])
		})},
		{"blake3", "lukechampine.com/blake3", perRecord(func(record []byte) uint64 {
			hash := champine.Sum256(record)
			return binary.LittleEndian.Uint64(hash[:])
		})},
	}
}

// ---- simhash, with shingles of 8 bytes ----

func simhashes() []implementation {
	return []implementation{
		ownSimhash.implementation("simhash", 8, 0),
		{"simhash", "Go, bit slices", perRecord(similar)},
		fastSimhash.implementation("simhash", "C++, vectors of bit slices", nil),
	}
}

// similar counts each of the 64 bits in bit slices: five words have the digits of 64 counters up to 31.
func similar(record []byte) uint64 {
	shingles := len(record) - 7
	if shingles < 1 {
		return 0 // the corpus has no such record
	}
	var total [64]int
	for from := 0; from < shingles; from += 31 {
		var a, b, c, d, e uint64
		for at := from; at < min(from+31, shingles); at++ {
			x := binary.LittleEndian.Uint64(record[at:])
			x += 0xf1bbcdcbfa53e0a8 // 8 * 0x9e3779b97f4a7c15
			x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
			x = (x ^ (x >> 27)) * 0x94d049bb133111eb
			x ^= x >> 31
			a, x = a^x, a&x
			b, x = b^x, b&x
			c, x = c^x, c&x
			d, x = d^x, d&x
			e ^= x
		}
		for p, plane := range [5]uint64{a, b, c, d, e} {
			for ; plane != 0; plane &= plane - 1 {
				total[bits.TrailingZeros64(plane)&63] += 1 << p
			}
		}
	}
	var hash uint64
	for b, n := range total {
		if 2*n > shingles {
			hash |= 1 << b
		}
	}
	return hash
}

// ---- keywords: occurrences of words, as keywords?whole=0&fold=0 counts them ----

// words has 50 words, of which the texts contain some.
var words = []string{
	"water", "grain", "größer", "вода", "石臼", "🌾", "stones", "miller", "wheel", "flour", "bread", "river", "sluice", "gear", "axle",
	"error", "warning", "panic", "fatal", "timeout", "refused", "denied", "password", "token", "secret", "credit", "invoice", "payment",
	"account", "order", "customer", "address", "street", "city", "country", "London", "Paris", "Berlin", "Tokyo", "Moscow", "Cairo",
	"Monday", "Friday", "January", "December", "morning", "evening", "winter", "summer", "harvest",
}

func keywordses() []implementation {
	builder := ahocorasick.NewAhoCorasickBuilder(ahocorasick.Opts{DFA: true, MatchKind: ahocorasick.StandardMatch})
	matcher := builder.Build(words)
	return []implementation{
		fastKeywords.implementation("keywords", "C++, Aho-Corasick", automatonOf(words)),
		{"keywords", "petar-dambovaliev/aho-corasick", perRecord(func(record []byte) uint64 {
			found := uint64(0)
			for iter := matcher.IterOverlappingByte(record); iter.Next() != nil; {
				found++
			}
			return found
		})},
	}
}

// ---- redact, numbers of at least 12 digits ----

func redactors() []implementation {
	return []implementation{
		ownRedact.implementation("redact", 8, 1),
		{"redact", "Go, regexp", perRecord(redactByRegexp)},
		{"redact", "Go, scanner", perRecord(redactByScanner)},
	}
}

var number = regexp.MustCompile(`[0-9](?:[ -]?[0-9])*`)

// mask hides the digits of a number but the last four, if it has at least 12, and reports whether it has.
func mask(n []byte) bool {
	digits := 0
	for _, c := range n {
		if isDigit(c) {
			digits++
		}
	}
	if digits < 12 {
		return false
	}
	for i, c := range n {
		if isDigit(c) {
			if digits > 4 {
				n[i] = '*'
			}
			digits--
		}
	}
	return true
}

func isDigit(c byte) bool { return c-'0' < 10 }

func redactByRegexp(record []byte) uint64 {
	text, masked := append([]byte(nil), record...), uint64(0)
	for _, at := range number.FindAllIndex(record, -1) {
		if mask(text[at[0]:at[1]]) {
			masked++
		}
	}
	return masked
}

func redactByScanner(record []byte) uint64 {
	text, masked := append([]byte(nil), record...), uint64(0)
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		end := i + 1
		for end < len(text) && (isDigit(text[end]) || ((text[end] == ' ' || text[end] == '-') && end+1 < len(text) && isDigit(text[end-1]) && isDigit(text[end+1]))) {
			end++
		}
		if mask(text[i:end]) {
			masked++
		}
		i = end
	}
	return masked
}
