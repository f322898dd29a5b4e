package quality

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	client "millrace/client/quality"
)

// special are the parts of texts that the definitions treat specially, and their neighbors.
var special = slices.Concat(
	Marks, ReadMore, CommonWords, Policies, []string{Lorem, strings.ToUpper(Lorem)},
	[]string{
		"\n", "\n\n", "\n\n\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\u0085", "\u2028", "\u2029", "\u00a0", "\u3000",
		"\u200b", "\u180e", "\ufeff", "\b", "\t", " ", "  ", "http://", "https://", "http", "s://", "://", "%0a", "%", "porn", "a%zz", "<", "é",
		"#", "##", "#a", "-", "\u2022", "\u25cf", "· ", "(", "[", "{", "\u27e8", "\u27e9", ".", "?", "!", "\"", "'", "\u3002", "\u0589",
		"\u212a", "coo\u212aies", "use coo\u212aies", "COOKIE POLICY", "coo\u212aie policy", "privacy", "policy", "terms", " of", " use",
		"a", "B", "7", "word", "WORD", "中文", "\u0345", "\U00011db0", "\U00020000", "\u00b2", "\u0130", "x", "same line\n", "\n \n",
		strings.Repeat("w", 31), strings.Repeat("long ", 40), strings.Repeat("ü", 200),
	})

// invalid are bytes that aren't valid UTF-8 in most places.
var invalid = []string{"\xff", "\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\x80", "\xf0\x9f\x98"}

// specialText returns a text that a sequence of choices determines. One text in 16 may be invalid UTF-8.
func specialText(choices []byte) []byte {
	var text []byte
	for i, choice := range choices {
		if i > 0 && choices[0]&15 == 0 && choice >= 252 {
			text = append(text, invalid[int(choice+choices[i-1])%len(invalid)]...)
			continue
		}
		text = append(text, special[int(choice)%len(special)]...)
	}
	return text
}

// agree checks that all implementations return the same counters.
func agree(t *testing.T, text []byte) {
	t.Helper()
	for _, hasNGrams := range []bool{false, true} {
		want, wantOK := Reference(text, hasNGrams)
		memory := make([]byte, MemoryBytes(1, len(text), hasNGrams))
		for i := range memory {
			memory[i] = 0xA5 // Count must not rely on zeros
		}
		got := Counters{client.Words: 99, client.Duplicate7GramChars: 99}
		if ok := Count(&got, text, memory, hasNGrams); ok != wantOK {
			t.Fatalf("%q: valid is %v, want %v", text, ok, wantOK)
		}
		if got != want {
			compare(t, "count", got, want[:])
			t.Fatalf("of %q", text)
		}
	}
}

func TestCountAgreesOnSpecialTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		choices := make([]byte, random.IntN(40))
		for i := range choices {
			choices[i] = byte(random.UintN(256))
		}
		agree(t, specialText(choices))
	}
}

// TestCountAgreesOnShortTexts tries all texts of up to six characters, from those that matter for lines and paragraphs.
func TestCountAgreesOnShortTexts(t *testing.T) {
	alphabet := []string{"\n", "a", " ", "\r", "\u2028"}
	texts := []string{""}
	for range 6 {
		var longer []string
		for _, text := range texts {
			agree(t, []byte(text))
			for _, a := range alphabet {
				longer = append(longer, text+a)
			}
		}
		texts = longer
	}
	for _, text := range texts {
		agree(t, []byte(text))
	}
}

// TestCountAgreesAtTheEndOfTheText cuts off an escape, and ends the last paragraph with one newline where an equal paragraph has two
// more. The set compares the two paragraphs only if they share a slot, so there are many texts.
func TestCountAgreesAtTheEndOfTheText(t *testing.T) {
	for _, text := range []string{"http://a%4", "http://a%", "http://%41", "http://", "://", "x http:/", "the", "th", "use", "use ", "e ", "lorem ipsu"} {
		agree(t, []byte(text))
	}
	for i := range 300 {
		word := strconv.Itoa(i)
		agree(t, []byte(word+"\n\n\n\n"+word+"\n"))
	}
}

func FuzzCount(f *testing.F) {
	f.Add([]byte("\x01\x02\x03"), true)
	f.Add([]byte("a\r\n\n\nhttp://x \xe2\x84\xaa"), false)
	f.Fuzz(func(t *testing.T, data []byte, isChoices bool) {
		const maxChoices, maxBytes = 100, 2000 // the reference is slow
		if isChoices {
			data = specialText(data[:min(len(data), maxChoices)])
		} else {
			data = data[:min(len(data), maxBytes)]
		}
		agree(t, data)
	})
}
