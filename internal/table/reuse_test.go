package table

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// TestAReusedTableIsLikeANewOne encodes messages of several producers with one table, in random order and with changing
// operators. Failed records must not have results of an earlier message.
func TestAReusedTableIsLikeANewOne(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	lists := [][]operator.Operator{
		parseList(t, "crc32c"), {texts{}}, append(parseList(t, "crc32c,minhash?k=4&hashes=2"), texts{}), append([]operator.Operator{texts{}}, parseList(t, "crc32c")...),
	}
	// fill stores the results of all records without a failure, as the consumer of frames does.
	fill := func(into *Table, ops []operator.Operator, records [][]byte, statuses []record.Status) {
		into.Reset(ops, len(records))
		for i, r := range records {
			into.SetLength(i, len(r))
			into.SetStatus(i, statuses[i])
			for op := range ops {
				if statuses[i] == record.OK {
					into.PutValue(op, i, ops[op].AppendReference(nil, r))
				}
			}
		}
	}
	var reused Table
	for range 600 {
		ops := lists[random.IntN(len(lists))]
		records, statuses := someRecords(1+random.IntN(60), 1+random.IntN(5))
		var fresh Table
		fill(&reused, ops, records, statuses)
		fill(&fresh, ops, records, statuses)
		for _, f := range formats {
			limit := 200 + random.IntN(2000)
			got, gotParts, gotErr := reused.Parts(nil, f, limit, nil)
			want, wantParts, wantErr := fresh.Parts(nil, f, limit, nil)
			if !bytes.Equal(got, want) || len(gotParts) != len(wantParts) || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%v of %d records in messages of %d bytes: a reused table gives %d parts, %v, a new table %d parts, %v",
					f, len(records), limit, len(gotParts), gotErr, len(wantParts), wantErr)
			}
		}
		for _, f := range formats {
			got, want := reused.Append(nil, f, 0, len(records)), fresh.Append(nil, f, 0, len(records))
			if !bytes.Equal(got, want) {
				t.Fatalf("%v of %d records with statuses %v: a reused table gives %q, a new table %q", f, len(records), statuses, got, want)
			}
		}
		if statuses[0] == record.OK {
			if got, want := reused.AppendSingle(nil, operator.JSON), fresh.AppendSingle(nil, operator.JSON); !bytes.Equal(got, want) {
				t.Fatalf("a message without framing: a reused table gives %q, a new table %q", got, want)
			}
		}
	}
}
