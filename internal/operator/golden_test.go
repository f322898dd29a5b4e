package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"millrace/internal/device"
)

// goldenFile contains specs, parameter blocks, needs and result messages of the built-in operators. It must not
// change without a new version of an operator, because users store these bytes.
const goldenFile = "testdata/builtin.golden"

// TestBuiltInOperatorsWriteTheSameBytes compares the output of the built-in operators with goldenFile.
func TestBuiltInOperatorsWriteTheSameBytes(t *testing.T) {
	want, got := strings.Split(string(readFile(t, goldenFile)), "\n"), strings.Split(goldenText(t), "\n")
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("line %d:\n%s\nwant\n%s", i+1, got[i], want[i])
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// goldenText returns the content of goldenFile, with one line per operator and one per message.
func goldenText(t *testing.T) string {
	var text strings.Builder
	for _, spec := range []string{"crc32c", "minhash", "minhash?k=7", "minhash?seed=0&hashes=1", "minhash?hashes=1024&seed=4294967295&k=256", "quality",
		"quality?ngrams=true", "neardup", "neardup?seed=0&k=7&rows=1&bands=64"} {
		op := parseKernel(t, spec)
		kernel := bind(t, op)
		fmt.Fprintf(&text, "%s is %s with name %s, block %x, stride %d", spec, op, op.Name(), op.Params(), op.Stride())
		for _, s := range []device.Shape{{}, {Rows: 1, Bytes: 9, Longest: 9}, {Rows: 300, Bytes: 1 << 20, Longest: 1 << 19}} {
			fmt.Fprintf(&text, ", needs %+v", kernel.Needs(s))
		}
		text.WriteByte('\n')
	}
	contents := map[string][]byte{
		"empty": {}, "digits": []byte("123456789"), "text": readFile(t, "testdata/text"), "bytes": readFile(t, "testdata/bytes"),
		"characters": []byte("größer als die 水車, 🌊 naïve"),
	}
	for _, list := range []string{"crc32c", "minhash?hashes=5", "minhash?k=1&hashes=1&seed=4294967295", "crc32c,minhash?k=4&hashes=2",
		"minhash,crc32c", "minhash?hashes=1024&k=256", "quality", "crc32c,quality?ngrams=true", "neardup",
		"crc32c,neardup?bands=3&rows=5&k=1&seed=4294967295"} {
		for _, name := range []string{"empty", "digits", "text", "bytes", "characters"} {
			for _, f := range []Format{JSON, Binary, Arrow} {
				fmt.Fprintf(&text, "%s of %s as %v: %s\n", list, name, f, goldenBody(f, message(f, Kernels(parseList(t, list)), contents[name])))
			}
		}
	}
	return text.String()
}

// goldenBody returns a body as one line. A long body is replaced by its hash.
func goldenBody(f Format, body []byte) string {
	const long = 1200
	switch {
	case len(body) > long:
		return fmt.Sprintf("%d bytes, SHA-256 %x", len(body), sha256.Sum256(body))
	case f == JSON:
		return string(body)
	}
	return hex.EncodeToString(body)
}
