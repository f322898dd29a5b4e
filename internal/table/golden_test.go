package table

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"millrace/internal/operator"
)

// goldenFile contains results of frames with the built-in operators. It must not change without a new
// version of an operator, because users store these bytes.
const goldenFile = "testdata/builtin.golden"

// TestBuiltInOperatorsWriteTheSameBytes compares results of the built-in operators with goldenFile.
func TestBuiltInOperatorsWriteTheSameBytes(t *testing.T) {
	file, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	want, got := strings.Split(string(file), "\n\n"), strings.Split(goldenText(t), "\n\n")
	if len(got) != len(want) {
		t.Errorf("%d results, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("result %d:\n%s\nwant\n%s", i+1, got[i], want[i])
		}
	}
}

// goldenText returns the content of goldenFile, with an empty line after each result.
func goldenText(t *testing.T) string {
	var text strings.Builder
	for _, list := range []string{"crc32c", "minhash?hashes=3", "crc32c,minhash?k=4&hashes=2&seed=9", "minhash,crc32c",
		"crc32c,neardup?bands=3"} {
		for _, records := range []struct{ n, failing int }{{0, 0}, {1, 0}, {1, 1}, {6, 0}, {6, 3}, {600, 0}, {600, 7}} {
			table := someTable(parseList(t, list), records.n, records.failing)
			for i := 1; i < records.n && strings.Contains(list, "neardup"); i += 3 { // the others have no duplicates
				table.PutValue(1, i, duplicateOf(uint64(1000*i)))
			}
			for _, f := range formats {
				fmt.Fprintf(&text, "%s of %d records, one in %d failing, as %v:\n%s\n\n", list, records.n, records.failing, f,
					goldenBody(f, table.Append(nil, f, 0, records.n)))
			}
		}
	}
	return text.String()
}

// goldenBody returns a body as text. A long body is replaced by its hash.
func goldenBody(f operator.Format, body []byte) string {
	const long = 1500
	switch {
	case len(body) > long:
		return fmt.Sprintf("%d bytes, SHA-256 %x", len(body), sha256.Sum256(body))
	case f == operator.JSON:
		return strings.TrimSuffix(string(body), "\n")
	}
	return hex.EncodeToString(body)
}
