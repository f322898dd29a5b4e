package quality

import (
	"slices"
	"strings"
	"unicode/utf8"

	client "millrace/client/quality"
)

// Reference returns the counters of a text. If hasNGrams is true, they include the counters of n-grams. It returns false and zeros if the
// text isn't valid UTF-8. Reference splits the text as Python's str type does, and then computes one counter after the other.
func Reference(text []byte, hasNGrams bool) (c Counters, ok bool) {
	if !utf8.Valid(text) {
		return c, false
	}
	chars := []rune(string(text))
	countChars(&c, chars)
	words := strings.FieldsFunc(string(text), isSpace)
	countWords(&c, words)
	if hasNGrams {
		for n := MinNGram; n <= MaxNGram; n++ {
			c[client.Duplicate5GramChars+client.Counter(n-MinNGram)] = duplicateChars(words, n)
		}
	}
	countURLs(&c, chars)
	countLines(&c, strings.Split(string(text), "\n"))
	countParagraphs(&c, strings.Split(string(text), "\n\n"))
	countPythonLines(&c, splitLines(string(text)))
	countRuns(&c, string(text))
	return c, true
}

func isSpace(u rune) bool { return slices.Contains(Spaces, u) }

// length returns the number of characters.
func length(s string) uint32 { return uint32(utf8.RuneCountInString(s)) }

// count returns 1 if the condition is true, or else 0.
func count(condition bool) uint32 {
	if condition {
		return 1
	}
	return 0
}

func countChars(c *Counters, chars []rune) {
	for _, u := range chars {
		c[client.Chars]++
		c[client.Newlines] += count(u == '\n')
		c[client.AlnumChars] += count(strings.ContainsRune(Alnum, u))
		c[client.DigitChars] += count(strings.ContainsRune(Digits, u))
		c[client.WhiteChars] += count(strings.ContainsRune(White, u))
		c[client.ParenChars] += count(slices.Contains(Brackets, u))
	}
}

func countWords(c *Counters, words []string) {
	for _, w := range words {
		runs := strings.FieldsFunc(w, func(u rune) bool { return u != '#' })
		c[client.Words]++
		c[client.WordChars] += length(w)
		c[client.LongestWord] = max(c[client.LongestWord], length(w))
		c[client.SymbolWords] += count(slices.Contains(Marks, w) || 2*uint32(len(runs)) > length(w))
		c[client.CommonWords] += count(slices.Contains(CommonWords, w))
		c[client.AlphaWords] += count(strings.ContainsFunc(w, Alphabetic.Has))
	}
}

// duplicateChars returns the counter of duplicate n-grams.
func duplicateChars(words []string, n int) (chars uint32) {
	seen := map[string]bool{}
	counted := 0 // number of words at the start of the n-gram that belong to an earlier duplicate, too
	for i := range max(len(words)-n+1, 0) {
		gram := strings.Join(words[i:i+n], " ") // no word has a space
		if seen[gram] {
			chars += length(strings.Join(words[i+counted:i+n], "")) + uint32(min(n-counted, n-1))
			counted = n
		}
		seen[gram] = true
		counted = max(counted-1, 0)
	}
	return chars
}

// urlChar returns the number of characters that a URL can take from chars at once: 1, or 3 for an escape, or 0.
func urlChar(chars []rune) int {
	switch {
	case len(chars) >= 1 && strings.ContainsRune(URLChars, chars[0]):
		return 1
	case len(chars) >= 3 && chars[0] == '%' && strings.ContainsRune(Hex, chars[1]) && strings.ContainsRune(Hex, chars[2]):
		return 3
	}
	return 0
}

// urlLength returns the length of the URL at the start of chars, or 0.
func urlLength(chars []rune) int {
	for _, scheme := range []string{"http://", "https://"} {
		if len(chars) < len(scheme) || string(chars[:len(scheme)]) != scheme {
			continue
		}
		end := len(scheme)
		for n := urlChar(chars[end:]); n > 0; n = urlChar(chars[end:]) {
			end += n
		}
		if end > len(scheme) {
			return end
		}
	}
	return 0
}

func countURLs(c *Counters, chars []rune) {
	for i := 0; i < len(chars); {
		n := urlLength(chars[i:])
		c[client.URLChars] += uint32(n)
		c[client.PornURLs] += count(strings.Contains(string(chars[i:i+n]), "porn"))
		i += max(n, 1)
	}
}

// fold converts the characters that can occur in a phrase to lower case: A to Z, and the Kelvin sign, whose lower case is k.
func fold(s string) string {
	return strings.Map(func(u rune) rune {
		switch {
		case u >= 'A' && u <= 'Z':
			return u + 'a' - 'A'
		case u == '\u212A':
			return 'k'
		}
		return u
	}, s)
}

func endsIn(s string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(s, suffix) })
}

// countLines counts the lines among the pieces between newlines.
func countLines(c *Counters, pieces []string) {
	var lines []string
	for _, p := range pieces {
		c[client.LongLines] += count(length(p) >= MinLongLine)
		stripped := strings.TrimFunc(p, isSpace)
		if stripped == "" {
			continue
		}
		lines = append(lines, p)
		first, _ := utf8.DecodeRuneInString(stripped)
		last, _ := utf8.DecodeLastRuneInString(stripped)
		end, _ := utf8.DecodeLastRuneInString(p)
		c[client.Lines]++
		c[client.LineChars] += length(p)
		c[client.BulletLines] += count(slices.Contains(Bullets, first))
		c[client.EndmarkLines] += count(strings.ContainsRune(EndMarks, last))
		c[client.EllipsisLines] += count(endsIn(fold(stripped), slices.Concat(Marks, ReadMore)))
		c[client.TerminalLines] += count(slices.Contains(Terminal, end))
		c[client.ShortLines] += count(length(p) <= MaxShortLine)
	}
	c[client.RepeatedLines], c[client.RepeatedLineChars] = repeats(lines)
}

func countParagraphs(c *Counters, paragraphs []string) {
	for _, p := range paragraphs {
		contains := func(phrase string) bool { return strings.Contains(fold(p), phrase) }
		c[client.Paragraphs]++
		c[client.PolicyParagraphs] += count(slices.ContainsFunc(Policies, contains))
		c[client.LoremParagraphs] += count(contains(Lorem))
	}
	c[client.RepeatedParagraphs], c[client.RepeatedParagraphChars] = repeats(paragraphs)
}

// splitLines splits a text as Python's str.splitlines does.
func splitLines(s string) (lines []string) {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	for {
		end := strings.IndexFunc(s, func(u rune) bool { return slices.Contains(LineEnds, u) })
		if end < 0 {
			break
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		lines = append(lines, s[:end])
		s = s[end+n:]
	}
	if s != "" {
		lines = append(lines, s)
	}
	return lines
}

func countPythonLines(c *Counters, lines []string) {
	for _, l := range lines {
		first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(l, isSpace))
		c[client.DtLines]++
		c[client.DtBulletLines] += count(first == '\u2022' || first == '-')
		c[client.DtEllipsisLines] += count(endsIn(strings.TrimRightFunc(l, isSpace), []string{"...", "\u2026"}))
	}
}

// splitRuns splits a text at runs of at least the given number of newlines.
func splitRuns(s string, least int) (parts []string) {
	separator := strings.Repeat("\n", least)
	for {
		part, rest, found := strings.Cut(s, separator)
		parts = append(parts, part)
		if !found {
			return parts
		}
		s = strings.TrimLeft(rest, "\n")
	}
}

// countRuns counts the parts between runs of newlines.
func countRuns(c *Counters, text string) {
	paragraphs := splitRuns(strings.TrimFunc(text, isSpace), 2)
	c[client.GrParagraphs] = uint32(len(paragraphs))
	c[client.GrRepeatedParagraphs], c[client.GrRepeatedParagraphChars] = repeats(paragraphs)
	lines := splitRuns(text, 1)
	c[client.GrLines] = uint32(len(lines))
	c[client.GrRepeatedLines], c[client.GrRepeatedLineChars] = repeats(lines)
}

// repeats returns the number of parts that are equal to an earlier one, and their characters.
func repeats(parts []string) (repeated, chars uint32) {
	seen := map[string]bool{}
	for _, p := range parts {
		if seen[p] {
			repeated++
			chars += length(p)
		}
		seen[p] = true
	}
	return repeated, chars
}
