package unpack

import (
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// jsonResults returns the JSON results of one operator.
func jsonResults(t *testing.T) Results {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return Results{Operators: ops, Format: operator.JSON}
}

// TestMaxBytesCoversALargestMessage shows that the maximum memory for a message depends on the limits of frames and on
// framing and compression.
func TestMaxBytesCoversALargestMessage(t *testing.T) {
	t.Parallel()
	const payload, limit, records = 1 << 20, 64 << 20, 1000
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
		"framed":                          {frame.NewlineDelimited, compression.None, plain, records, plain.cost(records, 0)},
		"framed, at most a record a byte": {frame.VarintLengthDelimited, compression.None, plain, 2 * payload, plain.cost(payload+1, 0)},
		"compressed":                      {frame.None, compression.Gzip, plain, records, limit + plain.cost(1, 0)},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, plain, records, limit + plain.cost(records, 0)},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, plain, records, limit + plain.cost(records, 0)},
		"by the headers":                  {frame.Auto, compression.Auto, plain, records, 2*limit + plain.cost(records, 0)},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, twice, records, twice.cost(records, 0)},
	} {
		o := Options{Split: frame.Splitter{Framing: c.framing, MaxRecords: c.records, MaxBytes: limit}, Decompress: c.decompress, Results: c.results}
		if got := o.MaxBytes(payload); got != c.want {
			t.Errorf("%s: a message takes %d bytes, want %d", name, got, c.want)
		}
	}
	if plain, twice := plain.cost(records, 0), twice.cost(records, 0); twice <= plain {
		t.Errorf("compressed results take %d bytes, and others %d", twice, plain)
	}
}

type variable struct{ operator.Operator }

func (variable) MaxStrings() (maximum, perByte int)                    { return 10, 3 }
func (variable) AppendStrings(dst, _ []byte, _ []uint32, _ int) []byte { return dst }

// TestCostsCountByteStrings shows that byte strings cost their size in the table, and twice their size in the JSON
// body.
func TestCostsCountByteStrings(t *testing.T) {
	t.Parallel()
	plain := jsonResults(t)
	texts := plain
	texts.Operators = []operator.Operator{variable{plain.Operators[0]}}
	const records, bytes = 1000, 1 << 20
	if got, minimum := texts.cost(records, bytes)-plain.cost(records, bytes), int64(3*(10*records+3*bytes)); got < minimum {
		t.Errorf("byte strings take %d bytes, want at least %d", got, minimum)
	}
	if got, minimum := texts.cost(records, 2*bytes)-texts.cost(records, bytes), int64(3*3*bytes); got < minimum {
		t.Errorf("a MiB more of records takes %d bytes, want at least %d", got, minimum)
	}
	o := Options{Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: records, MaxBytes: 64 << 20}, Results: texts}
	if got, want := o.MaxBytes(bytes), texts.cost(records, bytes); got != want {
		t.Errorf("the largest message takes %d bytes, want %d", got, want)
	}
}
