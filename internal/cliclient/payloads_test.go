package cliclient

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// source returns a source that reads the text in small pieces.
func source(name, text string) Source {
	return Source{name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// described returns texts that describe the payloads.
func described(t *testing.T, p *Payloads) (all []string) {
	t.Helper()
	for payload := range p.All() {
		text := fmt.Sprintf("%s %q", payload.Place, payload.Data)
		if payload.Err != nil {
			text = fmt.Sprintf("%s: %v", payload.Place, payload.Err)
		}
		all = append(all, text)
	}
	return all
}

func TestPayloads(t *testing.T) {
	missing := Source{"none", func() (io.ReadCloser, error) { return os.Open("/nowhere/none") }}
	long := strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct {
		p    *Payloads
		want []string
	}{
		"files": {&Payloads{Sources: []Source{source("a", "one\ntwo"), missing, source("b", "")}, Max: 7},
			[]string{`a "one\ntwo"`, "none: open /nowhere/none: no such file or directory", `b ""`}},
		"a file that is too large": {&Payloads{Sources: []Source{source("a", "12345678"), source("b", "1")}, Max: 7},
			[]string{"a: larger than the server's max_payload of 7 bytes (does each line hold a payload? Then use --lines)", `b "1"`}},
		"lines": {&Payloads{Sources: []Source{source("a", "one\r\n\ntwo\rthree\nlast"), source("b", "b\n")}, Lines: true, Max: 10},
			[]string{`a:1 "one"`, `a:2 ""`, `a:3 "two\rthree"`, `a:4 "last"`, `b:1 "b"`}},
		"lines of the most bytes": {&Payloads{Sources: []Source{source("a", "1234567\r\n12345678\n"+long+"\n1234567\n"+long)}, Lines: true, Max: 7},
			[]string{`a:1 "1234567"`, "a:2: larger than the server's max_payload of 7 bytes", "a:3: larger than the server's max_payload of 7 bytes", `a:4 "1234567"`,
				"a:5: larger than the server's max_payload of 7 bytes"}},
		"lines of UTF-16 and of what is no text": {&Payloads{Sources: []Source{source("le", "\xff\xfea\x00\n\x00"), source("be", "\xfe\xff\n\x0a"), source("bare", "a\x00\n\x00"),
			source("zip", "PK\x03\x04\n\x00"), source("latin1", "caf\xe9\n")}, Lines: true, Max: 10},
			[]string{"le: it is text in UTF-16 or UTF-32, by its byte order mark: " + linesAdvice, "be: it is text in UTF-16 or UTF-32, by its byte order mark: " + linesAdvice,
				"bare: it has a zero byte at offset 1, so it is no text, or text in UTF-16 or UTF-32: " + linesAdvice,
				"zip: it has a zero byte at offset 5, so it is no text, or text in UTF-16 or UTF-32: " + linesAdvice, `latin1:1 "caf\xe9"`}},
		"what is no text, whole": {&Payloads{Sources: []Source{source("a", "\xff\xfe\n\x00")}, Max: 10}, []string{`a "\xff\xfe\n\x00"`}},
		"no lines":               {&Payloads{Sources: []Source{source("a", "")}, Lines: true, Max: 7}, nil},
	} {
		if got := described(t, c.p); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestLargeLinesTakeNoMemory reads a line of 64 MiB with a limit of 1 KiB.
func TestLargeLinesTakeNoMemory(t *testing.T) {
	endless := io.LimitReader(spaces{}, 64<<20)
	p := &Payloads{Sources: []Source{{"a", func() (io.ReadCloser, error) { return io.NopCloser(endless), nil }}}, Lines: true, Max: 1 << 10}
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for payload := range p.All() {
			if !errors.Is(payload.Err, errTooLarge) {
				b.Errorf("a line of %d bytes, %v", len(payload.Data), payload.Err)
			}
		}
	}).MemBytes
	if allocated > 4<<20 || p.Read() != 64<<20 {
		t.Errorf("%d bytes were allocated and %d read", allocated, p.Read())
	}
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// TestLinesAreSentAsTheyCome shows that each line is available before the pipe ends.
func TestLinesAreSentAsTheyCome(t *testing.T) {
	r, w := io.Pipe()
	p := &Payloads{Sources: []Source{{"pipe", func() (io.ReadCloser, error) { return r, nil }}}, Lines: true, Max: 10}
	out := Start(t.Context(), p.All())
	for _, line := range []string{"", "two"} {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-out; string(got.Data) != line || got.Err != nil {
			t.Errorf("got %q, %v, want %q", got.Data, got.Err, line)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, more := <-out; more {
		t.Errorf("got %q after the end", got.Data)
	}
}

func TestABrokenSourceEndsWithAnError(t *testing.T) {
	for _, lines := range []bool{false, true} {
		broken := io.NopCloser(io.MultiReader(strings.NewReader("one\n"), errorReader{}))
		p := &Payloads{Sources: []Source{{"a", func() (io.ReadCloser, error) { return broken, nil }}, source("b", "b")}, Lines: lines, Max: 10}
		want := []string{"a: broken", `b "b"`}
		if lines {
			want = []string{`a:1 "one"`, "a:2: broken", `b:1 "b"`}
		}
		if got := described(t, p); !slices.Equal(got, want) {
			t.Errorf("lines %v: got %q, want %q", lines, got, want)
		}
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("broken") }
