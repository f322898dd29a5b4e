package console

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Redraws reports whether a line on f can be overwritten, as for a progress bar. A terminal with TERM=dumb can't
// overwrite lines.
func Redraws(f *os.File) bool { return IsTerminal(f) && os.Getenv("TERM") != "dumb" }

// UsesColour reports whether the program should write colours to f. Users disable colours with NO_COLOR (see
// https://no-color.org) or with TERM=dumb.
func UsesColour(f *os.File) bool { return Redraws(f) && os.Getenv("NO_COLOR") == "" }

const (
	// defaultWidth is the width in columns if the terminal's width is unknown.
	defaultWidth = 80

	// minWidth is the minimum width in columns for Width and Wrap.
	minWidth = 40
)

// Width returns the terminal's width in columns, at least 40. It returns 80 if f is not a terminal.
func Width(f *os.File) int {
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return defaultWidth
	}
	return max(w, minWidth)
}

// Wrap breaks text between words into lines of at most width columns, and begins each line with indent spaces. Wrap
// uses at least 40 columns. An empty line separates paragraphs, and Wrap ignores the line breaks within a paragraph. It
// never splits a word that is longer than a line. It copies a paragraph unchanged if the paragraph begins with a space
// or a tab, such as an example.
func Wrap(text string, width, indent int) string {
	width, margin := max(width, minWidth), strings.Repeat(" ", indent)
	var out strings.Builder
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		if strings.HasPrefix(paragraph, " ") || strings.HasPrefix(paragraph, "\t") {
			out.WriteString(paragraph + "\n")
			continue
		}
		column := 0
		for _, word := range strings.Fields(paragraph) {
			n := len([]rune(word))
			switch {
			case column == 0:
				out.WriteString(margin)
				column = indent
			case column+1+n > width:
				out.WriteString("\n" + margin)
				column = indent
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += n
		}
		out.WriteByte('\n')
	}
	return out.String()
}
