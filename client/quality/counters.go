// Package quality computes the scores of well-known text filters from the counters of the operator "quality". The scores and decisions are
// exactly those of NVIDIA NeMo Curator's heuristic filters, and of all parts of Hugging Face's datatrove that need no tokenizer.
//
// A Counters has the counters of a record. Read it from a JSON result with json.Unmarshal, and make it from a binary or Arrow result with
// AppendUint32s. The filters are data: CuratorEnglish and Datatrove list them.
package quality

import (
	"encoding/json"
	"fmt"
)

// Counter is the index of a counter in Counters.
type Counter int

// These constants are the counters, in the order of the operator's fields.
//
// A character is a code point. A space is one of the 29 code points of Python's str.isspace. A word is a maximal run of characters that
// aren't spaces. A piece is the text between two newlines (U+000A). A line is a piece with a character that isn't a space. A paragraph is
// the text between two pairs of newlines, as in Python's split("\n\n"), and may be empty.
//
// A line or paragraph is repeated if an equal line or paragraph comes before it.
const (
	Chars       Counter = iota // characters
	Newlines                   // U+000A
	AlnumChars                 // ASCII letters and digits, newline, and ! , . ?
	DigitChars                 // 0 to 9
	WhiteChars                 // U+0008, tab, newline, carriage return, space (U+0020)
	ParenChars                 // ( ) [ ] { } U+27E8 U+27E9
	Words                      // words
	WordChars                  // characters of words
	LongestWord                // characters of the longest word
	SymbolWords                // words that are an ellipsis mark, or in which twice the number of runs of # exceeds the length
	CommonWords                // the words the, be, to, of, and, that, have, with
	URLChars                   // characters of URLs, which begin with http:// or https://
	PornURLs                   // URLs that contain "porn"

	Lines         // lines
	LineChars     // characters of lines
	BulletLines   // lines whose first character that isn't a space is a bullet
	EndmarkLines  // lines whose last character that isn't a space is . ? ! " or '
	EllipsisLines // lines that end in an ellipsis mark, "read more" or "read more..", apart from spaces

	Paragraphs       // paragraphs
	PolicyParagraphs // paragraphs that contain one of Curator's phrases about policies and cookies, ignoring case
	LoremParagraphs  // paragraphs that contain "lorem ipsum", ignoring case

	DtLines         // lines of Python's str.splitlines, which has 10 line ends and keeps empty lines
	DtBulletLines   // lines of DtLines whose first character that isn't a space is U+2022 or -
	DtEllipsisLines // lines of DtLines whose text before trailing spaces ends in "..." or U+2026
	TerminalLines   // lines whose last character is one of datatrove's 159 punctuation marks
	ShortLines      // lines of at most 30 characters
	LongLines       // pieces of at least 200 characters

	AlphaWords // words with a character that has the property Alphabetic of Unicode 17

	RepeatedLines          // repeated lines
	RepeatedLineChars      // characters of repeated lines
	RepeatedParagraphs     // repeated paragraphs
	RepeatedParagraphChars // characters of repeated paragraphs

	GrParagraphs             // parts of the text without outer spaces, between runs of two or more newlines
	GrRepeatedParagraphs     // repeated parts of GrParagraphs
	GrRepeatedParagraphChars // characters of these repeated parts
	GrLines                  // parts of the text between runs of newlines; the first and the last may be empty
	GrRepeatedLines          // repeated parts of GrLines
	GrRepeatedLineChars      // characters of these repeated parts

	// The operator counts these only with the parameter ngrams=true. An n-gram is a sequence of n words. It is a duplicate if an earlier
	// n-gram is equal. For each duplicate, the counter adds the characters of its words that belong to no earlier duplicate. It also adds
	// one for each of these words, but at most n-1.
	Duplicate5GramChars
	Duplicate6GramChars
	Duplicate7GramChars
	Duplicate8GramChars
	Duplicate9GramChars
	Duplicate10GramChars

	NumCounters // number of all counters, including the counters of n-grams
)

// InvalidUTF8 is the operator's reason for refusing a record.
const InvalidUTF8 = "invalid UTF-8"

var names = [NumCounters]string{
	"chars", "newlines", "alnum_chars", "digit_chars", "white_chars", "paren_chars", "words", "word_chars", "longest_word", "symbol_words",
	"common_words", "url_chars", "porn_urls", "lines", "line_chars", "bullet_lines", "endmark_lines", "ellipsis_lines", "paragraphs",
	"policy_paragraphs", "lorem_paragraphs", "dt_lines", "dt_bullet_lines", "dt_ellipsis_lines", "terminal_lines", "short_lines",
	"long_lines", "alpha_words", "repeated_lines", "repeated_line_chars", "repeated_paragraphs", "repeated_paragraph_chars",
	"gr_paragraphs", "gr_repeated_paragraphs", "gr_repeated_paragraph_chars", "gr_lines", "gr_repeated_lines", "gr_repeated_line_chars",
	"duplicate_5gram_chars", "duplicate_6gram_chars", "duplicate_7gram_chars", "duplicate_8gram_chars", "duplicate_9gram_chars",
	"duplicate_10gram_chars",
}

// String returns the name of the operator's field, such as "alnum_chars".
func (c Counter) String() string {
	if c >= 0 && c < NumCounters {
		return names[c]
	}
	return fmt.Sprintf("Counter(%d)", int(c))
}

// Counters holds the counters of one record. It has all NumCounters counters, or only the counters before Duplicate5GramChars without
// ngrams=true. A value of a binary result contains them in little-endian order.
type Counters []uint32

// HasNGrams reports whether the operator counted duplicate n-grams.
func (c Counters) HasNGrams() bool { return len(c) == int(NumCounters) }

// UnmarshalJSON reads the operator's value in a JSON result. Every counter must be there, but all counters of n-grams may be missing. Other
// members are ignored.
func (c *Counters) UnmarshalJSON(value []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return err
	}
	number := NumCounters
	if _, ok := members[names[Duplicate5GramChars]]; !ok {
		number = Duplicate5GramChars
	}
	*c = make(Counters, number)
	for i, name := range names[:number] {
		member, ok := members[name]
		if !ok {
			return fmt.Errorf("counters without %q: not a result of the operator quality", name)
		}
		if err := json.Unmarshal(member, &(*c)[i]); err != nil {
			return fmt.Errorf("counter %q: %w", name, err)
		}
	}
	return nil
}
