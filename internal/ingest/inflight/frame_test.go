package inflight

import (
	"bytes"
	"testing"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func linePool(t *testing.T, pipe *streams.Pipeline) *Pool {
	t.Helper()
	p, err := NewPool([]*streams.Pipeline{pipe}, memory.Worker{Messages: memory.Messages{
		Format: operator.JSON, Operators: crc32c(t), Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxBytes: 64 << 20},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill packs as many records of a delivery as fit into a new batch. It returns the inflight batch and its streams
// batch.
func fill(t *testing.T, pipe *streams.Pipeline, d Delivery) (*Batch, *streams.Batch) {
	t.Helper()
	b, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Release)
	g := &Batch{}
	g.Pack(b, d)
	return g, b
}

// TestABatchThatIsCollectedLeavesItsOpenFrame shows that a collected batch neither keeps its frame's message alive
// nor fails it. The frame's last batch may end first, and the frame is then reused for another message.
func TestABatchThatIsCollectedLeavesItsOpenFrame(t *testing.T) {
	t.Parallel()
	for name, collected := range map[string]func(g *Batch){
		"at once":   func(g *Batch) { g.Collected() },
		"in pieces": func(g *Batch) { g.CollectedRows(g.UnsettledRows()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := testPipeline(t, hostDevice(t), streams.Options{BatchPayloads: 4})
			pool := linePool(t, pipe)
			msg := &countedMsg{paperMsg: paperMsg{data: []byte("1\n2\n3\n4\n5\n6\n")}}
			d := Delivery{Msg: msg, Received: time.Now()}
			pool.Unpack(&d)
			d.Frame.Open()
			first, _ := fill(t, pipe, d)
			last, _ := fill(t, pipe, d)
			if first.Open() != d.Frame || len(first.Items) != 0 || len(last.Items) != 1 {
				t.Fatalf("the frame is not spread over two batches: %d and %d end in them", len(first.Items), len(last.Items))
			}
			if first.keepAlive(time.Now().Add(time.Hour), time.Second); msg.told != 1 {
				t.Errorf("told of the open frame %d times, want 1", msg.told)
			}
			last.Collected()
			if n := d.Frame.missing.Load(); n != 1 {
				t.Fatalf("%d batches are missing, want the first", n)
			}
			collected(first)
			if err := d.Frame.Await(t.Context()); err != nil {
				t.Fatal(err)
			}
			first.FailOpen(compression.ErrTooLarge)
			if told := first.keepAlive(time.Now().Add(time.Hour), time.Second); told != 0 || first.Open() != nil {
				t.Errorf("the first batch still tells of %d deliveries", told)
			}
		})
	}
}

// noOwner implements Owner.
type noOwner struct{ Owner }

func (noOwner) Packed(*Batch) {}

// BenchmarkFrame unpacks a frame of 512 KiB with lines of 256 bytes, packs its records into batches, and recycles the
// batches.
func BenchmarkFrame(b *testing.B) {
	body := bytes.Repeat(append(bytes.Repeat([]byte("a"), 255), '\n'), 2048)
	for name, c := range map[string]struct {
		decompress compression.Encoding
		body       []byte
	}{
		"plain": {compression.None, body},
		"zstd":  {compression.Zstd, new(compression.Compressor).Append(nil, compression.Zstd, body)},
	} {
		b.Run(name, func(b *testing.B) {
			pipe := testPipeline(b, hostDevice(b), streams.Options{BatchPayloads: 8192})
			pool, err := NewPool([]*streams.Pipeline{pipe}, memory.Worker{Messages: memory.Messages{
				Format: operator.JSON, Operators: crc32c(b), Split: frame.Splitter{Framing: frame.NewlineDelimited}, Decompress: c.decompress,
			}})
			if err != nil {
				b.Fatal(err)
			}
			f, q := testPacker(b, pool, pipe, time.Minute, NewWindow(1))
			q.owner = noOwner{}
			msg := &paperMsg{data: c.body}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d := Delivery{Msg: msg}
				pool.Unpack(&d)
				d.Frame.Open()
				batch, err := pipe.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				p := &Packed{Batch: batch}
				if g := f.open(p, q); !f.pack(p, g, d) {
					b.Fatal("the frame does not fit into a batch")
				}
				f.close(p, streams.ClosedByBytes)
				batch.Release()
				p.Groups[0].Collected()
				pool.Recycle(p.Groups[0])
			}
		})
	}
}
