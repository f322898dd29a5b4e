package streams_test

import (
	"math/rand/v2"
	"testing"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// pack returns the payloads back to back. ends holds the position after each payload, counted from origin.
func pack(rows [][]byte, origin uint32) (values []byte, ends []uint32) {
	for _, row := range rows {
		values = append(values, row...)
		ends = append(ends, origin+uint32(len(values)))
	}
	return values, ends
}

// A run fills a batch like its payloads one by one. The same rows fit, and the results are the same. Origins near the
// largest uint32 wrap around.
func TestARunFillsABatchAsItsPayloadsDo(t *testing.T) {
	ops := operators(t, "crc32c,minhash?hashes=4")
	p := newPipeline(t, openHost(t), streams.Options{BatchBytes: 4096, BatchPayloads: 40, Operators: ops})
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
			t.Fatalf("a batch of %d rows has the age %v", run.Rows(), run.Oldest())
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
	p := newPipeline(t, openHost(t), streams.Options{BatchBytes: 100, BatchPayloads: 2})
	b := acquire(t, p, [][]byte{make([]byte, 60)})
	defer b.Release()
	values, ends := pack([][]byte{make([]byte, 41), nil}, 0)
	if n := b.AppendRun(values, ends); n != 0 || b.Rows() != 1 || b.Bytes() != 60 {
		t.Errorf("a run beyond the byte bound appended %d rows: the batch has %d rows and %d bytes, want 1 and 60", n, b.Rows(), b.Bytes())
	}
	values, ends = pack([][]byte{make([]byte, 40), nil}, 0)
	if n := b.AppendRun(values, ends); n != 1 || b.Bytes() != 100 {
		t.Errorf("a run beyond the row bound appended %d rows to %d bytes, want 1 and 100", n, b.Bytes())
	}
	if n := b.AppendRun(nil, nil); n != 0 {
		t.Errorf("a run without payloads appended %d rows", n)
	}
}

// The operators size their work by the longest payload, whether it was added alone or in a run.
func TestTheLongestPayloadOfARunCounts(t *testing.T) {
	short, long, longest := make([]byte, 10), make([]byte, 500), make([]byte, 501)
	for _, c := range []struct {
		before, run [][]byte
		want        int
	}{
		{nil, [][]byte{short, longest, long}, 501},
		{nil, [][]byte{longest, short}, 501},
		{[][]byte{longest}, [][]byte{short, long}, 501},
		{[][]byte{long}, [][]byte{short, longest}, 501},
		{nil, [][]byte{{}, {}}, 0},
	} {
		d := spyOn(openHost(t))
		var launched []int
		d.inEnqueue = func(commands []device.Command) {
			for _, command := range commands {
				if command.Args != nil {
					launched = append(launched, command.Args.Shape.Longest)
				}
			}
		}
		p := newPipeline(t, d, streams.Options{Operators: operators(t, "crc32c")})
		b := acquire(t, p, c.before)
		b.AppendRun(pack(c.run, 9))
		launched = nil
		if err := b.Submit(streams.ClosedByBytes); err != nil {
			t.Fatal(err)
		}
		(<-p.Completed()).Release()
		if len(launched) != 1 || launched[0] != c.want {
			t.Errorf("the kernels were launched for payloads of up to %v bytes, want %d", launched, c.want)
		}
	}
}

// BenchmarkAppend compares the ways to fill a batch with payloads of 256 B.
func BenchmarkAppend(b *testing.B) {
	const size, rows = 256, 2048
	p := newPipeline(b, openHost(b), streams.Options{BatchBytes: rows * size, BatchPayloads: rows, Operators: operators(b, "crc32c")})
	values := make([]byte, rows*size)
	ends := make([]uint32, rows)
	for i := range ends {
		ends[i] = uint32(size * (i + 1))
	}
	fill := func(b *testing.B, fill func(*streams.Batch)) {
		b.SetBytes(rows * size)
		b.ReportAllocs()
		for b.Loop() {
			batch := acquire(b, p, nil)
			fill(batch)
			if batch.Rows() != rows {
				b.Fatalf("%d rows", batch.Rows())
			}
			batch.Release()
		}
	}
	b.Run("one by one", func(b *testing.B) {
		fill(b, func(batch *streams.Batch) {
			for i := range rows {
				batch.Append(values[size*i : size*(i+1)])
			}
		})
	})
	b.Run("run", func(b *testing.B) {
		fill(b, func(batch *streams.Batch) { batch.AppendRun(values, ends) })
	})
}
