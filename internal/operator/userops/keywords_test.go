//go:build cgo

package userops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator"
)

const keywords = "../../../examples/operators/keywords/keywords.cu"

// keywordsFolder returns a folder with the operator keywords, its library and a word list.
func keywordsFolder(t *testing.T, words []byte) string {
	t.Helper()
	source, err := os.ReadFile(keywords)
	if err != nil {
		t.Fatal(err)
	}
	dir := folderWith(t, "keywords", string(source), true)
	if err := os.WriteFile(filepath.Join(dir, "words.txt"), words, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// counted is the independent reference of keywords. It compares every word at every position.
func counted(record []byte, words []string, whole, fold bool) (matches, first uint32) {
	text := string(record)
	if fold {
		text = asciiLower(text)
	}
	for at := range record {
		for i, word := range words {
			if fold {
				word = asciiLower(word)
			}
			end := at + len(word)
			if word == "" || !strings.HasPrefix(text[at:], word) {
				continue
			}
			cut := at > 0 && inWord(record[at-1]) && inWord(record[at]) || end < len(record) && inWord(record[end-1]) && inWord(record[end])
			if whole && cut {
				continue
			}
			if matches == 0 {
				first = uint32(i + 1)
			}
			matches++
		}
	}
	return matches, first
}

// asciiLower converts ASCII letters to lower case. Other bytes may be invalid text.
func asciiLower(text string) string {
	lower := []byte(text)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}

func inWord(c byte) bool {
	return c == '_' || c >= 128 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// letters returns n characters of a small alphabet, which makes words frequent. They are ASCII, so every word is valid
// text.
func letters(random *rand.Rand, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = "abABcC d_-."[random.IntN(11)]
	}
	return string(text)
}

func TestKeywordsIsItsReference(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var words []string
	for range 3000 { // exceeds one chunk of the index
		words = append(words, letters(random, random.IntN(9)))
	}
	words[17] = ""
	sources := find(t, keywordsFolder(t, []byte(strings.Join(words, "\n")+"\r\n")))
	var records [][]byte
	for range 30 {
		records = append(records, []byte(letters(random, random.IntN(120))))
	}
	records = append(records, corpus.Lengths(9, 20)...)
	total, places := uint32(0), map[uint32]bool{}
	for _, p := range []struct{ whole, fold bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		op, err := operator.Parse(fmt.Sprintf("keywords?fold=%d&words=words.txt&whole=%d", number01(p.fold), number01(p.whole)), sources...)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			value := op.AppendReference(nil, record)
			matches, first := counted(record, words, p.whole, p.fold)
			if got, line := binary.LittleEndian.Uint32(value), binary.LittleEndian.Uint32(value[4:]); got != matches || line != first {
				t.Fatalf("%v of %q: %d matches, the first is line %d; want %d, line %d", op, record, got, line, matches, first)
			}
			total += matches
			places[first] = true
		}
	}
	if total < 10000 || len(places) < 15 {
		t.Errorf("%d matches of %d words: the test needs more", total, len(places))
	}
}

func number01(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSpecIdentifiesTheTable: the spec of an operator with a table contains the file's hash. A spec with a hash
// requires that content.
func TestSpecIdentifiesTheTable(t *testing.T) {
	dir := keywordsFolder(t, []byte("mill\nrace\n"))
	sources := find(t, dir)
	op, err := operator.Parse("keywords?words=words.txt", sources...)
	if err != nil {
		t.Fatal(err)
	}
	const want = "keywords?words=words.txt@f6a8b9ca49fc883b&whole=1&fold=1"
	if op.String() != want {
		t.Errorf("%v, want %s", op, want)
	}
	if again, err := operator.Parse(op.String(), sources...); err != nil || again.String() != want || !bytes.Equal(again.Params(), op.Params()) {
		t.Errorf("the spec is read as %v, %v", again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "words.txt"), []byte("mill\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := op.AppendReference(nil, []byte("a race")); got[0] != 1 {
		t.Errorf("an operator doesn't keep the contents that it has read: %v", got)
	}
	if _, err := operator.Parse(want, sources...); err == nil || !strings.Contains(err.Error(), "words.txt in "+dir+" has other contents") {
		t.Errorf("other contents: error %v", err)
	}
	if other, err := operator.Parse("keywords?words=words.txt", sources...); err != nil || other.String() == want {
		t.Errorf("other contents have the spec %v, %v", other, err)
	}
}
