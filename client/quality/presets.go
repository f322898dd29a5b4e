package quality

import (
	"fmt"
	"math"
	"slices"
)

// The limits in this file are the defaults of NVIDIA NeMo Curator 1e2e4275, nemo_curator/config/text/heuristic_filter_english_pipeline.yaml,
// and of Hugging Face datatrove a649de79, src/datatrove/pipeline/filters. Both are under Apache-2.0.

// noMax is the Max of a filter without an upper limit.
var noMax = math.Inf(1)

func of(c Counter) Sum { return Sum{{1, c}} }

// less returns the difference of two counters.
func less(a, b Counter) Sum { return Sum{{1, a}, {-1, b}} }

// paragraphChars is the number of characters of paragraphs. Each cut between two paragraphs removes two newlines.
var paragraphChars = Sum{{1, Chars}, {-2, Paragraphs}, {2, One}}

// duplicates returns Curator's filter of duplicate n-grams.
func duplicates(n uint32, limit float64) Filter {
	return Filter{Name: fmt.Sprintf("RepeatingDuplicateNGramsFilter n=%d", n), MinWords: n,
		Numerator: of(Duplicate5GramChars + Counter(n-5)), Denominator: of(Chars), Max: limit}
}

// CuratorEnglish returns the 28 filters of Curator's pipeline for English, in its order. 19 of them have a score. Six more have a score if
// the operator has the parameter ngrams=true. Each call returns a new slice, whose limits you may change.
func CuratorEnglish() []Filter {
	const random = "the score depends on Python's random hash seed"
	return []Filter{
		{Name: "NonAlphaNumericFilter", Numerator: less(Chars, AlnumChars), Denominator: of(Chars), IsOneIfEmpty: true, Max: 0.25},
		{Name: "SymbolsToWordsFilter", Numerator: of(SymbolWords), Denominator: of(Words), Max: 0.1},
		{Name: "NumbersFilter", Numerator: of(DigitChars), Denominator: of(Chars), IsOneIfEmpty: true, Max: 0.15},
		{Name: "UrlsFilter", Numerator: of(URLChars), Denominator: of(Chars), IsOneIfEmpty: true, Max: 0.2},
		{Name: "WhiteSpaceFilter", Numerator: of(WhiteChars), Denominator: of(Chars), IsOneIfEmpty: true, Max: 0.25},
		{Name: "ParenthesesFilter", Numerator: of(ParenChars), Denominator: of(Chars), IsOneIfEmpty: true, Max: 0.1},
		{Name: "BoilerPlateStringFilter", Numerator: of(PolicyParagraphs), Denominator: of(Paragraphs), OneIf: of(LoremParagraphs), Max: 0.4},
		{Name: "RepeatedLinesFilter", Numerator: less(Lines, RepeatedLines), Denominator: of(Lines), Min: 0.7, Max: noMax},
		{Name: "RepeatedParagraphsFilter", Numerator: less(Paragraphs, RepeatedParagraphs), Denominator: of(Paragraphs), Min: 0.7, Max: noMax},
		{Name: "RepeatedLinesByCharFilter", Numerator: less(LineChars, RepeatedLineChars), Denominator: of(LineChars), Min: 0.8, Max: noMax},
		{Name: "RepeatedParagraphsByCharFilter", Numerator: slices.Concat(paragraphChars, Sum{{-1, RepeatedParagraphChars}}), Denominator: paragraphChars,
			Min: 0.8, Max: noMax},
		{Name: "WordCountFilter", Numerator: of(Words), Min: 50, Max: 100000},
		{Name: "PunctuationFilter", Numerator: less(Lines, EndmarkLines), Denominator: of(Lines), Max: 0.85},
		{Name: "WordsWithoutAlphabetsFilter", Numerator: of(AlphaWords), Denominator: of(Words), Min: 0.8, Max: noMax},
		{Name: "CommonEnglishWordsFilter", Numerator: of(CommonWords), Cap: 2, Min: 2, Max: noMax},
		{Name: "MeanWordLengthFilter", Numerator: of(WordChars), Denominator: of(Words), Min: 3, Max: 10},
		{Name: "LongWordFilter", Numerator: of(LongestWord), Requires: of(Words), Max: 1000},
		{Name: "EllipsisFilter", Numerator: of(EllipsisLines), Denominator: of(Lines), Max: 0.3},
		{Name: "RepeatingTopNGramsFilter n=2", Missing: random, Max: 0.2},
		{Name: "RepeatingTopNGramsFilter n=3", Missing: random, Max: 0.18},
		{Name: "RepeatingTopNGramsFilter n=4", Missing: random, Max: 0.16},
		duplicates(5, 0.15),
		duplicates(6, 0.14),
		duplicates(7, 0.13),
		duplicates(8, 0.12),
		duplicates(9, 0.11),
		duplicates(10, 0.1),
		{Name: "BulletsFilter", Numerator: of(BulletLines), Denominator: of(Lines), Max: 0.9},
	}
}

// PornographicUrls returns a filter of Curator that isn't in its pipeline for English.
func PornographicUrls() Filter { return Filter{Name: "PornographicUrlsFilter", OneIf: of(PornURLs)} }

// Datatrove returns the conditions of datatrove's filters that need no tokenizer. A filter's name is a class of datatrove. If the class has
// several conditions, the condition follows. Apart from C4ParagraphFilter, no class has all of its conditions here.
func Datatrove() []Filter {
	return []Filter{
		{Name: "GopherQualityFilter.bullets", Numerator: of(DtBulletLines), Denominator: of(DtLines), Max: 0.9},
		{Name: "GopherQualityFilter.end_ellipsis", Numerator: of(DtEllipsisLines), Denominator: of(DtLines), Max: 0.3},
		{Name: "GopherRepetitionFilter.dup_para_frac", Numerator: of(GrRepeatedParagraphs), Denominator: of(GrParagraphs), Max: 0.3},
		{Name: "GopherRepetitionFilter.dup_para_char_frac", Numerator: of(GrRepeatedParagraphChars), Denominator: of(Chars), Max: 0.2},
		{Name: "GopherRepetitionFilter.dup_line_frac", Numerator: of(GrRepeatedLines), Denominator: of(GrLines), Max: 0.3},
		{Name: "GopherRepetitionFilter.dup_line_char_frac", Numerator: of(GrRepeatedLineChars), Denominator: of(Chars), Max: 0.2},
		{Name: "FineWebQualityFilter.empty", Numerator: of(Lines), Min: 1, Max: noMax},
		{Name: "FineWebQualityFilter.line_punct_ratio", Numerator: of(TerminalLines), Denominator: of(Lines), Min: 0.12, Max: noMax},
		{Name: "FineWebQualityFilter.short_line_ratio", Numerator: of(ShortLines), Denominator: of(Lines), Max: 0.67},
		{Name: "FineWebQualityFilter.char_dup_ratio", Numerator: of(RepeatedLineChars), Denominator: less(Chars, Newlines), Max: 0.01},
		{Name: "C4ParagraphFilter", Numerator: of(LongLines), Min: 3, Max: noMax},
	}
}
