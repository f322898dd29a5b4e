package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"millrace/internal/arrowipc"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// texts is an operator with one byte string, which equals the input. The operator's record is the input's length. The results of
// a batch are the records, followed by the inputs.
type texts struct{ operator.Operator }

func (texts) Name() string                        { return "texts" }
func (texts) String() string                      { return "texts" }
func (texts) Stride() int                         { return 4 }
func (texts) AppendJSON(dst, value []byte) []byte { return fmt.Appendf(dst, `"%x"`, value) }
func (texts) MaxJSON() int                        { return 10 }
func (texts) MaxStrings() (maximum, perByte int)  { return 0, 1 }

func (texts) AppendReference(dst, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(payload))), payload...)
}

func (texts) AppendStrings(dst, results []byte, offsets []uint32, row int) []byte {
	rows := results[4*(len(offsets)-1):]
	return append(dst, rows[offsets[row]:offsets[row+1]]...)
}

func (texts) ArrowColumn() arrowipc.Column {
	return arrowipc.Column{Name: "texts", Spec: "texts", Kind: arrowipc.Single, Width: 4, Fields: []arrowipc.Field{{Name: "text", Type: arrowipc.BinaryType}}}
}

// resultsOf returns the results of the kernel of texts for a batch.
func resultsOf(records [][]byte) (results []byte, offsets []uint32) {
	offsets = []uint32{0}
	for _, r := range records {
		results = binary.LittleEndian.AppendUint32(results, uint32(len(r)))
		offsets = append(offsets, offsets[len(offsets)-1]+uint32(len(r)))
	}
	return append(results, bytes.Join(records, nil)...), offsets
}

// TestByteStringsOfConcurrentBatches: the result doesn't depend on the order in which batches complete, or on the
// table's former content.
func TestByteStringsOfConcurrentBatches(t *testing.T) {
	records, statuses := someRecords(200, 5)
	ops := append(parseList(t, "crc32c"), texts{}, texts{})
	want := Reference(ops, records, statuses)
	var table Table
	for range 3 {
		table.Reset(ops, len(records))
		var all sync.WaitGroup
		for first := 0; first < len(records); first += 30 {
			all.Go(func() {
				batch := records[first:min(first+30, len(records))]
				results, offsets := resultsOf(batch)
				for op := 1; op < 3; op++ {
					table.Put(op, first, results[:4*len(batch)])
					table.PutStrings(op, first, len(batch), results, offsets, 0)
				}
				table.PutStrings(0, first, len(batch), nil, nil, 0) // operator 0 has no byte strings
				for i, r := range batch {
					table.Put(0, first+i, ops[0].AppendReference(nil, r))
					table.SetLength(first+i, len(r))
					table.SetStatus(first+i, statuses[first+i])
				}
			})
		}
		all.Wait()
		for _, f := range formats {
			for _, r := range ranges {
				if r[1] > len(records) {
					continue
				}
				if got := table.Append(nil, f, r[0], r[1]); !bytes.Equal(got, want.Append(nil, f, r[0], r[1])) {
					t.Fatalf("%v of %v: the result differs from the reference", f, r)
				}
			}
		}
	}
}

// TestBinaryBytesOfByteStrings checks the layout byte by byte.
func TestBinaryBytesOfByteStrings(t *testing.T) {
	table := Reference([]operator.Operator{texts{}}, [][]byte{[]byte("abcde"), []byte("no"), nil, []byte("x")},
		[]record.Status{record.OK, record.TooLarge, record.OK, record.OK})
	want := "4d494c4c" + "0200" + "0100" + "04000000" + "00000000" + // MILL, version 2, 1 operator, 4 records, first record 0
		"05000000" + "04000080" + "7465787473" + "000000" + // spec of 5 bytes, records of 4 bytes, with byte strings
		"00020000" + // statuses
		"05000000" + "00000000" + "00000000" + "01000000" + // records
		"00000000" + "05000000" + "05000000" + "05000000" + "06000000" + // positions
		"6162636465" + "78" + "0000"
	if got := fmt.Sprintf("%x", table.Append(nil, operator.Binary, 0, 4)); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// TestPartsAreCutByTheirByteStrings: the byte strings of a part don't exceed the limit, and a body that can't fit isn't
// encoded.
func TestPartsAreCutByTheirByteStrings(t *testing.T) {
	records := make([][]byte, 3000)
	for i := range records {
		if records[i] = []byte("small"); i >= 2000 {
			records[i] = bytes.Repeat([]byte{'x'}, 10_000) // follows the records that determine the estimate
		}
	}
	table := Reference([]operator.Operator{texts{}}, records, nil)
	for _, f := range []operator.Format{operator.Binary, operator.Arrow} {
		const limit = 100_000
		bodies, parts, err := table.Parts(nil, f, limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		if maximum := 32 << 20; cap(bodies) > maximum {
			t.Errorf("%v: %d bytes of memory for the parts", f, cap(bodies))
		}
		for _, p := range parts {
			if len(p.Body) > limit {
				t.Errorf("%v: a part has %d bytes", f, len(p.Body))
			}
			if err := table.Check(p.Body, f, p.From, p.To); err != nil {
				t.Error(err)
			}
		}
	}
}
