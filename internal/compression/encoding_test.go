package compression

import (
	"strings"
	"testing"
)

func TestNamesOfSettings(t *testing.T) {
	for e := None; e <= Auto; e++ {
		var got Encoding
		if err := got.UnmarshalText([]byte(e.String())); err != nil || got != e {
			t.Errorf("%q is parsed as %v, %v", e, got, err)
		}
		got, err := ParseResult(e.String())
		if written := e != Gzip && e != Auto; written != (err == nil && got == e) {
			t.Errorf("ParseResult(%q) = %v, %v", e, got, err)
		}
	}
	for _, name := range []string{"", "ZSTD", "brotli"} {
		if err := new(Encoding).UnmarshalText([]byte(name)); err == nil || !strings.Contains(err.Error(), "none, zstd, gzip, lz4, snappy, auto") {
			t.Errorf("%q: error %v doesn't name the known encodings", name, err)
		}
		if _, err := ParseResult(name); err == nil || !strings.Contains(err.Error(), "none, zstd, lz4, snappy") {
			t.Errorf("ParseResult(%q): error %v doesn't name the known encodings", name, err)
		}
	}
	if got := Encoding(9).String(); got != "Encoding(9)" {
		t.Errorf("an unknown encoding is %q", got)
	}
}

func TestContentEncodings(t *testing.T) {
	for header, want := range map[string]Encoding{
		"": None, "identity": None, "zstd": Zstd, "gzip": Gzip, "x-gzip": Gzip, " GZip ": Gzip, "lz4": LZ4, "snappy": Snappy,
		"x-snappy-framed": Snappy, "s2": Snappy,
	} {
		if got, err := FromHeader(header); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", header, got, err, want)
		}
	}
	for header, want := range map[string]string{"gzip, zstd": "several", "br": "unknown", "auto": "unknown", "none": "unknown"} {
		if got, err := FromHeader(header); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error that says %q", header, got, err, want)
		}
	}
	for e := None; e < Auto; e++ {
		if got, err := FromHeader(e.ContentEncoding()); err != nil || got != e {
			t.Errorf("%v has the header %q, which is %v, %v", e, e.ContentEncoding(), got, err)
		}
	}
}
