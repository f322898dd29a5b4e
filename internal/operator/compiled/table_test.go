package compiled

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withTables returns a description with two tables and a number between them, and the tables' folder.
func withTables(t *testing.T) (d *Description, folder string) {
	t.Helper()
	d, err := Decode(describe(t, func(h *head, p *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) {
		h.ParameterBytes, p.Type, p.Preset, p.Min, p.Max = 8, uint32(Table), 0, 2, 20
	}))
	if err != nil {
		t.Fatal(err)
	}
	d.Parameters = append(d.Parameters, Parameter{Name: "k", Type: Uint32, Default: 7, Max: 9}, Parameter{Name: "m", Type: Table, Min: 1, Max: 5})
	d.Folder = t.TempDir()
	for name, text := range map[string]string{"a.txt": "seventeen bytes..", "sub/b-2_x": "five.", "one": "1", "long": strings.Repeat("x", 21)} {
		path := filepath.Join(d.Folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d, d.Folder
}

func TestTablesFollowTheParameterBlock(t *testing.T) {
	d, _ := withTables(t)
	o, err := d.Bind("m=sub/b-2_x&n=a.txt&k=3")
	if err != nil {
		t.Fatal(err)
	}
	want := "\x00\x00\x00\x00\x11\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" + "\x20\x00\x00\x00\x05\x00\x00\x00" + strings.Repeat("\x00", 8) +
		"seventeen bytes.." + strings.Repeat("\x00", 15) + "five."
	if got := string(o.Params()); got != want {
		t.Errorf("the block is %q\nwant         %q", got, want)
	}
	if got := string(o.Block()) + "|" + string(o.Tables()); got != want[:24]+"|"+want[32:] {
		t.Errorf("block and tables %q", got)
	}
	again, err := d.BindBlock(o.Params())
	if err != nil || !bytes.Equal(again.Params(), o.Params()) || again.String() != "sample?n=@85435d2a922307d5&k=3&m=@eaeb5e04beced2bc" {
		t.Errorf("the block is read as %v, %v", again, err)
	}
	if got := o.String(); got != "sample?n=a.txt@85435d2a922307d5&k=3&m=sub/b-2_x@eaeb5e04beced2bc" {
		t.Errorf("spec %s", got)
	}
}

func TestBadTablesAreRefused(t *testing.T) {
	d, folder := withTables(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(folder, "away")); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"m=one":                `parameter "n" has no default: give the name of a file in the operator's folder, sample?n=FILE`,
		"n=&m=one":             "name a file in the operator's folder",
		"n=../secret&m=one":    "name a file in the operator's folder",
		"n=/etc/hosts&m=one":   "name a file in the operator's folder",
		"n=sub/../a.txt&m=one": "name a file in the operator's folder",
		"n=.hidden&m=one":      "name a file in the operator's folder",
		"n=" + strings.Repeat("a", 256) + "&m=one": "name a file in the operator's folder",
		"n=none&m=one":          "no such file",
		"n=sub&m=one":           "sub in " + folder + " isn't a file",
		"n=away&m=one":          "escapes",
		"n=one&m=one":           "one in " + folder + " has 1 bytes: it may have 2 to 20 bytes",
		"n=long&m=one":          "has more than 20 bytes: it may have 2 to 20 bytes",
		"n=a.txt@0123&m=one":    "has other contents: it is a.txt@",
		"n=a.txt&m=one&n=a.txt": "given twice",
	} {
		if _, err := d.Bind(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", query, err, want)
		}
	}
	d.Folder = ""
	if _, err := d.Bind("n=a.txt&m=one"); err == nil || !strings.Contains(err.Error(), "doesn't know the operator's folder") {
		t.Errorf("without a folder: error %v", err)
	}
}

// TestTableOfAConfigMapIsRead: the files of a ConfigMap volume are links into a folder whose name starts with two dots.
func TestTableOfAConfigMapIsRead(t *testing.T) {
	d, folder := withTables(t)
	if err := os.MkdirAll(filepath.Join(folder, "..2026"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "..2026", "words.txt"), []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"..data": "..2026", "words.txt": "..data/words.txt"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	o, err := d.Bind("n=words.txt&m=words.txt")
	if err != nil || !bytes.HasPrefix(o.Tables(), []byte("words")) {
		t.Errorf("%v, %v", o, err)
	}
}

func TestBadBlocksWithTablesAreRefused(t *testing.T) {
	d, _ := withTables(t)
	o, err := d.Bind("n=a.txt&m=one")
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, to byte) []byte {
		block := o.Params()
		block[at] = to
		return block
	}
	for name, test := range map[string]struct {
		block []byte
		want  string
	}{
		"nothing":       {nil, "the parameter block has 0 bytes: give 32"},
		"no tables":     {o.Params()[:24], "the parameter block has 24 bytes: give 32"},
		"half a table":  {o.Params()[:40], `table "n" has 17 bytes at byte 0 of 8`},
		"one byte more": {append(o.Params(), 0), "34 bytes of tables: give 33"},
		"small":         {change(4, 1), `table "n" has 1 bytes`},
		"large":         {change(4, 21), `table "n" has 21 bytes`},
		"place":         {change(16, 31), `table "m" has 1 bytes at byte 31`},
	} {
		if _, err := d.BindBlock(test.block); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, test.want)
		}
	}
}
