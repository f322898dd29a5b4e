package streams_test

import (
	"math/rand/v2"
	"testing"

	"millrace/internal/streams"
)

// pack returns the payloads back to back, and the position after each of them, counted from origin.
func pack(rows [][]byte, origin uint32) (values []byte, ends []uint32) {
	for _, row := range rows {
		values = append(values, row...)
		ends = append(ends, origin+uint32(len(values)))
	}
	return values, ends
}

// A run fills a batch exactly as its payloads would one by one: the same rows fit, and the results are the same. Origins
// near the largest uint32 wrap around.
func TestARunFillsABatchAsItsPayloadsDo(t *testing.T) {
	ops := operators(t, "crc32c,minhash?hashes=4")
	p := newPipeline(t, openHost(t), streams.Config{BatchBytes: 4096, BatchPayloads: 40, Operators: ops})
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		before := someRows(uint64(n), random.IntN(5), 500)
		rows := someRows(uint64(n)+1000, random.IntN(60), random.IntN(300))
		single := acquire(t, p, before)
		fit := 0
		for fit < len(rows) && single.Append(rows[fit]) {
			fit++
		}

		run := acquire(t, p, before)
		values, ends := pack(rows, []uint32{0, 17, 1<<32 - 50}[n%3])
		if got := run.AppendRun(values, ends); got != fit {
			t.Fatalf("the run appended %d of %d payloads, one by one %d fit", got, len(rows), fit)
		}
		if run.Rows() != single.Rows() || run.Bytes() != single.Bytes() {
			t.Fatalf("the run gives %d rows and %d bytes, one by one there are %d and %d", run.Rows(), run.Bytes(), single.Rows(), single.Bytes())
		}
		if (run.Oldest() > 0) != (run.Rows() > 0) {
			t.Fatalf("a batch of %d rows is %v old", run.Rows(), run.Oldest())
		}
		single.Release()
		if run.Rows() == 0 {
			run.Release()
			continue
		}
		if err := run.Submit(streams.ClosedByCount); err != nil {
			t.Fatal(err)
		}
		done := <-p.Completed()
		wantResults(t, done, ops, append(before, rows[:fit]...))
		done.Release()
	}
}

func TestARunThatDoesNotFitChangesNothing(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Config{BatchBytes: 100, BatchPayloads: 2})
	b := acquire(t, p, [][]byte{make([]byte, 60)})
	defer b.Release()
	values, ends := pack([][]byte{make([]byte, 41), nil}, 0)
	if n := b.AppendRun(values, ends); n != 0 || b.Rows() != 1 || b.Bytes() != 60 {
		t.Errorf("a run past the byte bound appended %d rows: the batch has %d rows and %d bytes, want 1 and 60", n, b.Rows(), b.Bytes())
	}
	values, ends = pack([][]byte{make([]byte, 40), nil}, 0)
	if n := b.AppendRun(values, ends); n != 1 || b.Bytes() != 100 {
		t.Errorf("a run past the row bound appended %d rows to %d bytes, want 1 and 100", n, b.Bytes())
	}
	if n := b.AppendRun(nil, nil); n != 0 {
		t.Errorf("a run without payloads appended %d rows", n)
	}
}

// The operators size their work by the longest payload, so a run must count it.
func TestTheLongestPayloadOfARunCounts(t *testing.T) {
	ops := operators(t, "minhash?k=5&hashes=7")
	p := newPipeline(t, openHost(t), streams.Config{Operators: ops})
	rows := someRows(7, 3, 10)
	long := make([]byte, 100_000)
	for i := range long {
		long[i] = byte(i * i >> 3)
	}
	rows = append(rows, long, []byte("short"))
	b := acquire(t, p, nil)
	values, ends := pack(rows, 9)
	if n := b.AppendRun(values, ends); n != len(rows) {
		t.Fatalf("%d of %d payloads fit", n, len(rows))
	}
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		t.Fatal(err)
	}
	done := <-p.Completed()
	wantResults(t, done, ops, rows)
	done.Release()
}
