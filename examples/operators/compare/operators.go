package main

import (
	"encoding/binary"

	ahocorasick "github.com/petar-dambovaliev/aho-corasick"
	zeebo "github.com/zeebo/blake3"
)

// ---- entropy, with 4 bits ----

func entropies() []implementation {
	return []implementation{
		ownEntropy.implementation("entropy", 4, 0),
		fastEntropy.implementation("entropy", "C++, vectors", nil),
	}
}

// ---- blake3 ----

func blake3s() []implementation {
	return []implementation{
		ownBlake3.implementation("blake3", 32, 0),
		{"blake3", "zeebo/blake3", perRecord(func(record []byte) uint64 {
			hash := zeebo.Sum256(record)
			return binary.LittleEndian.Uint64(hash[:])
		})},
	}
}

// ---- simhash, with shingles of 8 bytes ----

func simhashes() []implementation {
	return []implementation{
		ownSimhash.implementation("simhash", 8, 0),
		fastSimhash.implementation("simhash", "C++, vectors of bit slices", nil),
	}
}

// ---- keywords: occurrences of words, as keywords?whole=0&fold=0 counts them ----

// words has 50 words. Some of them occur in the texts.
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
		{"redact", "Go, scanner", perRecord(redact)},
	}
}

// mask replaces all digits except the last four if n has at least 12 digits. It reports whether it replaced any.
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

func redact(record []byte) uint64 {
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
