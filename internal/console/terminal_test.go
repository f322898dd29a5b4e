package console

import (
	"os"
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	const word = "https://example.com/a/word/that/is/longer/than/a/line/of/forty/columns"
	text := "One two three four five six seven\neight nine ten eleven twelve.\n\nAnother paragraph " + word + " end\n"
	want := "  One two three four five six seven\n  eight nine ten eleven twelve.\n\n  Another paragraph\n  " + word + "\n  end\n"
	if got := Wrap(text, 40, 2); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(Wrap(strings.Repeat("größer ", 40), 61, 4)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 61 || n < 50 {
			t.Errorf("a line has %d columns, want almost 61: %q", n, line)
		}
	}
	example := "\tsource <(worker completion bash)\n\tand another line of the same example, which is rather long and is not broken"
	if got := Wrap("See:\n\n"+example, 40, 0); got != "See:\n\n"+example+"\n" {
		t.Errorf("an example becomes\n%s", got)
	}
	if got := Wrap("", 80, 4); got != "\n" {
		t.Errorf("an empty text gives %q", got)
	}
}

// TestPipesAreNotDrawnOn checks that a pipe is never a terminal, even if TERM and NO_COLOR allow drawing.
func TestPipesAreNotDrawnOn(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }() // nothing was written
	if IsTerminal(w) || Redraws(w) || UsesColour(w) || Width(w) != defaultWidth {
		t.Errorf("a pipe counts as a terminal of %d columns", Width(w))
	}
}
