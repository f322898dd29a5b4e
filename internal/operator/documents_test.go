package operator_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	client "millrace/client/quality"
	"millrace/internal/corpus"
	"millrace/internal/operator/quality"
)

// documents generates an endless list of documents. They are texts of the corpus with added parts that the counters of quality treat
// specially. The same seed gives the same documents on every machine. Most have 60 to 900 bytes. 1 in 100 is empty, 1 in 25 has up to 40
// bytes, 1 in 1,000 has 1 to 20 KB, and 1 in 20,000 is longer. 1 in 1,000 isn't valid UTF-8.
type documents struct {
	seed       uint64
	vocabulary *corpus.Vocabulary
}

func newDocuments(seed uint64) documents { return documents{seed, corpus.NewVocabulary(seed)} }

// append appends document number i.
func (d documents) append(dst []byte, i int) []byte {
	w := &documentWriter{random: corpus.Random{State: corpus.Seed(d.seed, i)}, vocabulary: d.vocabulary, text: dst, start: len(dst)}
	favorite := w.random.Below(len(documentParts))
	for size := w.size(); len(w.text)-w.start < size; {
		switch n := w.random.Below(100); {
		case n < 55:
			w.words()
		case n < 75:
			w.add(documentBreaks)
		case n < 92:
			documentParts[favorite](w)
		default:
			documentParts[w.random.Below(len(documentParts))](w)
		}
	}
	if w.random.Below(1000) == 0 {
		at := w.start + w.random.Below(len(w.text)-w.start+1)
		w.text = slices.Insert(w.text, at, []byte(notUTF8[w.random.Below(len(notUTF8))])...)
	}
	return w.text
}

// documentWriter writes one document.
type documentWriter struct {
	random     corpus.Random
	vocabulary *corpus.Vocabulary
	text       []byte
	start      int // where the document begins in text
}

// size returns the minimum size of the document in bytes.
func (w *documentWriter) size() int {
	switch n := w.random.Below(20000); {
	case n == 0:
		return 20_000 + w.random.Below(200_000)
	case n <= 200:
		return 0
	case n <= 1000:
		return 1 + w.random.Below(40)
	case n <= 1020:
		return 1000 + w.random.Below(19_000)
	}
	return 60 + w.random.Below(640)
}

// words appends words of the vocabulary.
func (w *documentWriter) words() {
	w.text = w.vocabulary.AppendUTF8(w.text, w.random.Next(), 10+w.random.Below(70))
}

// add appends a random one of the texts.
func (w *documentWriter) add(texts []string) {
	w.text = append(w.text, texts[w.random.Below(len(texts))]...)
}

// again repeats an earlier part of the document.
func (w *documentWriter) again(separator string) {
	parts := bytes.Split(w.text[w.start:], []byte(separator))
	w.text = append(w.text, separator...)
	w.text = append(w.text, parts[w.random.Below(len(parts))]...)
	w.text = append(w.text, separator...)
}

// wordsAgain repeats up to 40 successive words of the document, with other spaces between them.
func (w *documentWriter) wordsAgain() {
	words := bytes.Fields(w.text[w.start:])
	if len(words) == 0 {
		return
	}
	first := w.random.Below(len(words))
	words = words[first:min(first+1+w.random.Below(40), len(words))]
	w.text = append(w.text, ' ')
	for _, word := range words {
		w.text = append(w.text, word...)
		w.add([]string{" ", " ", " ", "  ", "\n", "\t", "\u3000"})
	}
}

// cycle repeats a few words many times, so that n-grams overlap.
func (w *documentWriter) cycle() {
	words := w.vocabulary.AppendUTF8(nil, w.random.Next(), 3+w.random.Below(24))
	for range 2 + w.random.Below(12) {
		w.text = append(append(w.text, words...), ' ')
	}
}

// runes appends at most `most` random code points from first to end-1.
func (w *documentWriter) runes(first, end, most int) {
	for range 1 + w.random.Below(most) {
		w.text = utf8.AppendRune(w.text, rune(first+w.random.Below(end-first))) // U+FFFD instead of a surrogate
	}
}

// documentParts append parts that the counters treat specially.
var documentParts = []func(w *documentWriter){
	func(w *documentWriter) { w.again("\n") },
	func(w *documentWriter) { w.again("\n\n") },
	(*documentWriter).wordsAgain,
	(*documentWriter).cycle,
	func(w *documentWriter) { w.add(documentSpaces) },
	func(w *documentWriter) { w.add(documentSymbols) },
	func(w *documentWriter) { w.add(documentPhrases) },
	func(w *documentWriter) { w.add(quality.CommonWords); w.text = append(w.text, ' ') },
	func(w *documentWriter) { w.text = append(w.text, '\n'); w.add(documentBullets) },
	func(w *documentWriter) { w.add(documentEnds); w.text = append(w.text, '\n') },
	func(w *documentWriter) { // a URL
		w.add([]string{"http://", "https://", "HTTP://", "https:/", "(https://", "httpshttp://"})
		for range w.random.Below(8) {
			w.add([]string{"mill.example", "/", "?a=b", "%20", "%4", "porn", "Porn", "~", "#", "\"", "é", "<", ",", "12"})
		}
		w.add([]string{" ", "\n", ""})
	},
	func(w *documentWriter) { w.runes('0', '9'+1, 12) },
	func(w *documentWriter) { w.runes(0, 0x80, 8) },
	func(w *documentWriter) { w.runes(0x80, 0x3000, 4); w.text = append(w.text, ' ') },
	func(w *documentWriter) { w.runes(0x4E00, 0x9FFF, 40) },
	func(w *documentWriter) { w.runes(0xA000, 0x33480, 3); w.text = append(w.text, ' ') },
	func(w *documentWriter) { w.runes('a', 'z'+1, 300) },
}

var (
	documentBreaks  = []string{". ", ", ", ".\n", "\n", "\n", "!\n\n", "\n\n", "? ", "...\n", "\r\n"}
	documentSpaces  = append(perRune(quality.Spaces, quality.LineEnds), "\n\n\n", "  ", "\r\n\r\n", "\u200b", "\u180e", "\ufeff", "\b", "\n \n")
	documentSymbols = append(slices.Concat(quality.Marks, quality.ReadMore, perRune(quality.Brackets)),
		"#", "##", "#a#", "a#b#", "# # ", "(…)", "READ MORE\n", "...\n", "[...]\n", " … ", " -»\n", "..", "$", "_")
	documentPhrases = append(inCases(append(quality.Policies, quality.Lorem)), "lorem\nipsum", "coo\u212aies", "terms  of use", "\u0130", "\n\n")
	documentBullets = append(perRune(quality.Bullets), "- ", "* ", "· ", "  • ", "\u3000◦ ", "-")
	documentEnds    = append(perRune(quality.Terminal), ".", "?", "!", "\"", "'", "”", "…", ". ", ".\r", ";")
	notUTF8         = []string{"\xff", "\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\x80", "\xf0\x9f\x98", "\xc3"}
)

// perRune returns a text for each code point.
func perRune(lists ...[]rune) (texts []string) {
	for _, r := range slices.Concat(lists...) {
		texts = append(texts, string(r))
	}
	return texts
}

// inCases returns phrases in several cases, without their last character, and with the Kelvin sign for k.
func inCases(phrases []string) (texts []string) {
	for _, p := range phrases {
		texts = append(texts, p, strings.ToUpper(p), strings.ToTitle(p[:1])+p[1:]+". ", p[:len(p)-1], strings.ReplaceAll(p, "k", "\u212a"))
	}
	return texts
}

// TestDocumentsExerciseTheCounters: documents in which a counter is 0 can't test the counter.
func TestDocumentsExerciseTheCounters(t *testing.T) {
	const number = 4000
	var (
		d        = newDocuments(1)
		hash     = sha256.New()
		positive [client.NumCounters]int
		empty    int
		short    int // non-empty, with fewer characters than a shingle of minhash
		invalid  int
		total    int
	)
	for i := range number {
		text := d.append(nil, i)
		hash.Write(text)
		total += len(text)
		counters, ok := quality.Reference(text, true)
		switch {
		case len(text) == 0:
			empty++
		case !ok:
			invalid++
		case counters[client.Chars] < 24:
			short++
		}
		for c, n := range counters {
			if n > 0 {
				positive[c]++
			}
		}
	}
	for c, n := range positive {
		if n < number/100 {
			t.Errorf("%v is positive in %d of %d documents, want at least 1 percent", client.Counter(c), n, number)
		}
	}
	if empty < number/200 || short < number/200 || invalid == 0 || invalid > number/200 {
		t.Errorf("of %d documents, %d are empty, %d are shorter than a shingle and %d aren't UTF-8", number, empty, short, invalid)
	}
	if mean := total / number; mean < 300 || mean > 600 {
		t.Errorf("documents have %d bytes on average, want 300 to 600", mean)
	}
	const want = "30a7aaddc86c54e33ec462f05360597e9683136ae2703ccc31f8509a2724579d"
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		t.Errorf("the documents of seed 1 have the hash %s, want %s: published figures depend on them", got, want)
	}
}
