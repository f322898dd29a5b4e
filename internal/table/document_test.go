package table_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// TestResultsDocumentShowsFrames: the example of a frame in the documentation matches the code's output.
func TestResultsDocumentShowsFrames(t *testing.T) {
	text, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	ops, err := operator.ParseList("crc32c,minhash?k=4&hashes=2")
	if err != nil {
		t.Fatal(err)
	}
	example := table.Reference(ops, [][]byte{[]byte("123456789"), {}, make([]byte, 5_000_000)}, []record.Status{record.OK, record.OK, record.TooLarge})
	blocks := regexp.MustCompile("(?s)```hexdump\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/results.md has %d hexdump blocks, want those of both versions", len(blocks))
	}
	var digits strings.Builder
	for line := range strings.Lines(string(blocks[1][1])) {
		var offset int
		if _, err := fmt.Sscan(line[:3], &offset); err != nil || digits.Len() != 2*offset {
			t.Errorf("the line %q begins at byte %d", line, digits.Len()/2)
		}
		bytesOnly, _, _ := strings.Cut(line[4:], "|") // columns: offset (four wide), bytes, meaning
		digits.WriteString(strings.Join(strings.Fields(bytesOnly), ""))
	}
	if got, want := digits.String(), fmt.Sprintf("%x", example.Append(nil, operator.Binary, 0, 3)); got != want {
		t.Errorf("the worked example is\n%s\nbut the code writes\n%s", got, want)
	}
	if want := string(example.Append(nil, operator.JSON, 0, 3)); !strings.Contains(string(text), "```json\n"+want+"```") {
		t.Errorf("docs/results.md does not show\n%s", want)
	}
}
