package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
)

var formats = []operator.Format{operator.JSON, operator.Binary, operator.Arrow}

func parseList(t testing.TB, list string) []operator.Operator {
	t.Helper()
	ops, err := operator.ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// someRecords returns n random records and a status for each. One status in failing isn't OK. All are OK if failing is
// 0.
func someRecords(n, failing int) ([][]byte, []record.Status) {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	records, statuses := make([][]byte, n), make([]record.Status, n)
	for i := range n {
		records[i] = make([]byte, r.IntN(60))
		for j := range records[i] {
			records[i][j] = byte(r.Uint32())
		}
		if failing > 0 && r.IntN(failing) == 0 {
			statuses[i] = record.Status(1 + r.IntN(int(record.DeviceFault)))
		}
	}
	return records, statuses
}

func someTable(ops []operator.Operator, n, failing int) *Table {
	records, statuses := someRecords(n, failing)
	return Reference(ops, records, statuses)
}

// columnsOf returns each operator's reference results, back to back.
func columnsOf(ops []operator.Operator, records [][]byte) [][]byte {
	columns := make([][]byte, len(ops))
	for k, op := range ops {
		for _, payload := range records {
			columns[k] = op.AppendReference(columns[k], payload)
		}
	}
	return columns
}

// TestBodiesDoNotDependOnHowTheTableIsFilled: several goroutines fill a reused table, in runs of any length and order.
// The results of failed records may be anything, before or after their status is set.
func TestBodiesDoNotDependOnHowTheTableIsFilled(t *testing.T) {
	const n = 500
	ops := parseList(t, "crc32c,minhash?k=3&hashes=5")
	records, statuses := someRecords(n, 4)
	columns, reference := columnsOf(ops, records), Reference(ops, records, statuses)
	var used Table
	for round := range 20 {
		r := rand.New(rand.NewPCG(3, uint64(round)))
		used.Reset(parseList(t, "minhash?hashes=9"), r.IntN(2*n))
		used.Reset(ops, n)
		fill(&used, r, columns, records, statuses)
		for _, f := range formats {
			if got, want := used.Append(nil, f, 0, n), reference.Append(nil, f, 0, n); !bytes.Equal(got, want) {
				t.Fatalf("round %d: the bodies as %v differ", round, f)
			}
		}
	}
}

// fill fills the table with one goroutine per operator and run.
func fill(table *Table, r *rand.Rand, columns [][]byte, records [][]byte, statuses []record.Status) {
	var wg sync.WaitGroup
	for next := 0; next < len(records); {
		first, run := next, min(1+r.IntN(100), len(records)-next)
		for k, op := range table.ops {
			results := bytes.Clone(columns[k][first*op.Stride() : (first+run)*op.Stride()])
			for i := range run {
				if statuses[first+i] != record.OK {
					results[i*op.Stride()] ^= byte(1 + r.IntN(255))
				}
			}
			wg.Go(func() { table.Put(k, first, results) })
		}
		wg.Go(func() {
			for i := first; i < first+run; i++ {
				table.SetLength(i, len(records[i]))
				table.SetStatus(i, statuses[i])
			}
		})
		next += run
	}
	wg.Wait()
}

func TestResetForgetsTheLastMessage(t *testing.T) {
	ops := parseList(t, "crc32c")
	table := someTable(ops, 50, 2)
	table.Reset(ops, 30)
	table.Put(0, 0, make([]byte, 4*30))
	if got, want := string(table.Append(nil, operator.JSON, 0, 30)), someEmpty(30); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

func someEmpty(n int) string {
	return string(bytes.Repeat([]byte(`{"bytes":0,"crc32c":"00000000"}`+"\n"), n))
}

func TestResetReusesMemory(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=4")
	table := someTable(ops, 1000, 0)
	if n := testing.AllocsPerRun(20, func() { table.Reset(ops, 500); table.Reset(ops[:1], 3); table.Reset(ops, 1000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMaxSizeBoundsSize(t *testing.T) {
	for _, list := range []string{"crc32c", "minhash?hashes=3,crc32c"} {
		ops := parseList(t, list)
		for _, f := range formats {
			var table Table
			for _, n := range []int{0, 1, 100, 999} {
				table.Reset(ops, n)
				for i := range n {
					table.SetStatus(i, record.OperatorError) // the longest line
				}
				table.Append(nil, f, 0, n)
			}
			got, maximum := table.Size(), MaxSize(f, ops, 999, 0)
			if got > maximum || got < 9*999 {
				t.Errorf("%s as %v: a table of %d bytes, and MaxSize is %d", list, f, got, maximum)
			}
			if maximum > got+1500 {
				t.Errorf("%s as %v: MaxSize is %d, far above %d", list, f, maximum, got)
			}
			noop := func(dst, src []byte) []byte { return append(dst, src...) }
			if _, _, err := table.Parts(nil, f, 1<<20, noop); err != nil {
				t.Fatal(err)
			}
			if got, maximum := table.Size(), maximum+int64(MaxBytes(f, ops, 999, 0)); got > maximum {
				t.Errorf("%s as %v: a table of %d bytes after Parts, and the bound is %d", list, f, got, maximum)
			}
		}
	}
}

func TestWrongCallsPanic(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=4")
	table := someTable(ops, 10, 0)
	for name, call := range map[string]func(){
		"part of a result":       func() { table.Put(0, 0, make([]byte, 6)) },
		"beyond the last record": func() { table.Put(1, 9, make([]byte, 32)) },
		"before the first":       func() { table.Put(1, -1, make([]byte, 16)) },
		"no such status":         func() { table.SetStatus(0, record.Statuses) },
		"no such records":        func() { table.Append(nil, operator.JSON, 3, 11) },
		"records backwards":      func() { table.Append(nil, operator.JSON, 3, 2) },
		"no such format":         func() { table.Append(nil, 9, 0, 10) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, list := range []string{"crc32c", "crc32c,minhash"} {
		for _, f := range formats {
			b.Run(fmt.Sprintf("%s/%v", list, f), func(b *testing.B) {
				table := benchTable(parseList(b, list))
				dst := make([]byte, 0, MaxBytes(f, table.ops, table.Records(), 0))
				b.SetBytes(512 << 10)
				b.ReportAllocs()
				for b.Loop() {
					dst = table.Append(dst[:0], f, 0, table.Records())
				}
				b.ReportMetric(float64(len(dst)), "body-bytes")
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, list := range []string{"crc32c", "crc32c,minhash"} {
		b.Run(list, func(b *testing.B) {
			ops := parseList(b, list)
			table := benchTable(ops)
			columns := make([][]byte, len(ops))
			for k := range ops {
				columns[k] = bytes.Clone(table.columns[k])
			}
			b.SetBytes(512 << 10)
			b.ReportAllocs()
			for b.Loop() {
				table.Reset(ops, 2048)
				for k := range ops {
					table.Put(k, 0, columns[k])
				}
			}
		})
	}
}

// benchTable returns a table for 2048 records of 256 bytes with random results.
func benchTable(ops []operator.Operator) *Table {
	var table Table
	table.Reset(ops, 2048)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2048 {
		table.SetLength(i, 256)
	}
	for k := range ops {
		for i := range table.columns[k] {
			table.columns[k][i] = byte(r.Uint32())
		}
	}
	return &table
}
