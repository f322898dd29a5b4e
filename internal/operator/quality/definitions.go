// Package quality computes the integer counters from which the scores of NeMo Curator's heuristic filters and several conditions of
// datatrove follow exactly. Each counter is defined at its field of Counters.
//
// The package has two implementations, deliberately without shared code except for the lists of this file and the property Alphabetic.
// Reference follows the definitions one by one. Count is fast. Package operator makes the operator "quality" from both.
package quality

//go:generate go run ./cudatables ../../../kernels/math/quality_tables.cuh

// Code points and phrases of the definitions. The order within each list is ascending.
//
// Origin: NVIDIA NeMo Curator 1e2e4275, nemo_curator/stages/text/utils/constants.py (Digits to Brackets, Marks, CommonWords,
// Lorem, Policies), and Hugging Face datatrove a649de79 (Terminal). Both are under Apache-2.0. Spaces and LineEnds are properties of Python's
// str type. Change no entry without a new version of the operator.

// Spaces are the code points of str.isspace. They separate words, and a line of only spaces isn't counted. Go's unicode.IsSpace
// lacks four of them.
var Spaces = []rune{
	0x0009, 0x000A, 0x000B, 0x000C, 0x000D, 0x001C, 0x001D, 0x001E, 0x001F, 0x0020, 0x0085, 0x00A0,
	0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A,
	0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
}

// LineEnds are the line ends of str.splitlines. A carriage return and the newline that follows it are one line end.
var LineEnds = []rune{
	0x000A, 0x000B, 0x000C, 0x000D, 0x001C, 0x001D, 0x001E, 0x0085, 0x2028, 0x2029,
}

// Sets of ASCII characters. In a URL, characters of URLChars and escapes (% with two characters of Hex) may follow http:// or https://.
const (
	Digits   = "0123456789"
	Letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	Alnum    = Letters + Digits + "\n?!,."
	White    = "\b\t\n\r "
	URLChars = Letters + Digits + "$-_@.&+/:=?#~!*(),"
	Hex      = Digits + "ABCDEFabcdef"
	EndMarks = "!\"'.?" // a line that ends with one of these counts as an endmark line
)

// Bullets begin a bullet line.
var Bullets = []rune{
	0x2022, 0x2023, 0x2043, 0x204C, 0x204D, 0x2219, 0x25CB, 0x25CF, 0x25D8, 0x25E6, 0x29BE, 0x29BF,
}

// Brackets count as paren_chars.
var Brackets = []rune{
	0x0028, 0x0029, 0x005B, 0x005D, 0x007B, 0x007D, 0x27E8, 0x27E9,
}

// Terminal is datatrove's TERMINAL_PUNCTUATION. It contains the last characters of terminal_lines.
var Terminal = []rune{
	0x0021, 0x002E, 0x003F, 0x0589, 0x061D, 0x061E, 0x061F, 0x06D4, 0x0700, 0x0701, 0x0702, 0x07F9,
	0x0837, 0x0839, 0x083D, 0x083E, 0x0964, 0x0965, 0x104A, 0x104B, 0x1362, 0x1367, 0x1368, 0x166E,
	0x1735, 0x1736, 0x17D4, 0x17D5, 0x17D6, 0x17D9, 0x17DA, 0x1803, 0x1809, 0x1944, 0x1945, 0x1AA8,
	0x1AA9, 0x1AAA, 0x1AAB, 0x1B5A, 0x1B5B, 0x1B5E, 0x1B5F, 0x1B7D, 0x1B7E, 0x1C3B, 0x1C3C, 0x1C7E,
	0x1C7F, 0x203C, 0x203D, 0x2047, 0x2048, 0x2049, 0x2E2E, 0x2E3C, 0x2E53, 0x2E54, 0x3002, 0xA4FF,
	0xA60E, 0xA60F, 0xA6F3, 0xA6F7, 0xA876, 0xA877, 0xA8CE, 0xA8CF, 0xA92F, 0xA9C8, 0xA9C9, 0xAA5D,
	0xAA5E, 0xAA5F, 0xAAF0, 0xAAF1, 0xABEB, 0xFE52, 0xFE56, 0xFE57, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61,
	0x10A56, 0x10A57, 0x10F55, 0x10F56, 0x10F57, 0x10F58, 0x10F59, 0x10F86, 0x10F87, 0x10F88, 0x10F89, 0x11047,
	0x11048, 0x110BE, 0x110BF, 0x110C0, 0x110C1, 0x11141, 0x11142, 0x11143, 0x111C5, 0x111C6, 0x111CD, 0x111DE,
	0x111DF, 0x11238, 0x11239, 0x1123B, 0x1123C, 0x112A9, 0x1144B, 0x1144C, 0x115C2, 0x115C3, 0x115C9, 0x115CA,
	0x115CB, 0x115CC, 0x115CD, 0x115CE, 0x115CF, 0x115D0, 0x115D1, 0x115D2, 0x115D3, 0x115D4, 0x115D5, 0x115D6,
	0x115D7, 0x11641, 0x11642, 0x1173C, 0x1173D, 0x1173E, 0x11944, 0x11946, 0x11A42, 0x11A43, 0x11A9B, 0x11A9C,
	0x11C41, 0x11C42, 0x11EF7, 0x11EF8, 0x11F43, 0x11F44, 0x16A6E, 0x16A6F, 0x16AF5, 0x16B37, 0x16B38, 0x16B44,
	0x16E98, 0x1BC9F, 0x1DA88,
}

// Marks are the words that count as symbol_words. A line that ends with a mark is an ellipsis line.
var Marks = []string{"...", "[...]", "\u2026", "(...)", "[\u2026]", "-\u00BB"}

// ReadMore lists phrases that also end an ellipsis line, in upper or lower case.
var ReadMore = []string{"read more..", "read more"}

// CommonWords count as common_words if they are in lower case.
var CommonWords = []string{"the", "be", "to", "of", "and", "that", "have", "with"}

// Lorem marks a paragraph of placeholder text, in upper or lower case.
const Lorem = "lorem ipsum"

// Policies mark a paragraph of boilerplate text, in upper or lower case. Curator's two other phrases contain "uses cookies", so they have
// no effect.
var Policies = []string{
	"terms of use",
	"privacy policy",
	"cookie policy",
	"uses cookies",
	"privacy overview",
	"use of cookies",
	"use cookies",
	"privacy & cookies policy",
	"privacy and cookies policy",
	"necessary cookies are absolutely essential for the website to function properly. this category only " +
		"includes cookies that ensures basic functionalities and security features of the website. these " +
		"cookies do not store any personal information.",
	"any cookies that may not be particularly necessary for the website to function and is used " +
		"specifically to collect user personal data via analytics, ads, other embedded contents are termed as" +
		" non-necessary cookies. it is mandatory to procure user consent prior to running these cookies on " +
		"your website.",
	"if you continue to browse this site without changing your cookie settings, you agree to this use. " +
		"acceptread more",
}

// Lengths, in words, of the n-grams whose duplicates are counted.
const (
	MinNGram = 5
	MaxNGram = 10
)

// Lengths of lines in characters.
const (
	MaxShortLine = 30  // FineWebQualityFilter's short_line_length
	MinLongLine  = 200 // C4ParagraphFilter's min_paragraph_len
)
