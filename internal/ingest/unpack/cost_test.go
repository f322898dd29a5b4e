package unpack

import (
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// jsonResults returns the results of one operator.
func jsonResults(t *testing.T) Results {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return Results{Operators: ops, Format: operator.JSON}
}

// TestMostCoversALargestMessage: the most memory for a message follows from the limits of frames, and from how messages are framed and
// compressed.
func TestMostCoversALargestMessage(t *testing.T) {
	t.Parallel()
	const payload, most, records = 1 << 20, 64 << 20, 1000
	plain := jsonResults(t)
	twice := plain
	twice.Compressed = true
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		results    Results
		records    int
		want       int64
	}{
		"neither framed nor compressed":   {frame.None, compression.None, plain, records, 0},
		"framed":                          {frame.NewlineDelimited, compression.None, plain, records, plain.cost(records)},
		"framed, at most a record a byte": {frame.VarintLengthDelimited, compression.None, plain, 2 * payload, plain.cost(payload + 1)},
		"compressed":                      {frame.None, compression.Gzip, plain, records, most + plain.cost(1)},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, plain, records, most + plain.cost(records)},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, plain, records, most + plain.cost(records)},
		"by the headers":                  {frame.Auto, compression.Auto, plain, records, 2*most + plain.cost(records)},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, twice, records, twice.cost(records)},
	} {
		s := Settings{Split: frame.Splitter{Framing: c.framing, MaxRecords: c.records, MaxBytes: most}, Decompress: c.decompress, Results: c.results}
		if got := s.Most(payload); got != c.want {
			t.Errorf("%s: a message takes %d bytes, want %d", name, got, c.want)
		}
	}
	if plain, twice := plain.cost(records), twice.cost(records); twice <= plain {
		t.Errorf("compressed results take %d bytes, and others %d", twice, plain)
	}
}
