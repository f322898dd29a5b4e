package inflight

import (
	"bytes"
	"testing"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func linePool(t *testing.T, pipe *streams.Pipeline) *Pool {
	t.Helper()
	p, err := NewPool([]*streams.Pipeline{pipe}, Options{
		Costs: NewCosts(operator.JSON, crc32c(t)), Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxBytes: 64 << 20},
	})
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

// TestABatchIsNotReservedBeyondTheMemory shows that while frames exceed the memory, the next frame waits until a
// submitted batch returns memory. The remaining records of a frame in memory do not wait.
func TestABatchIsNotReservedBeyondTheMemory(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{})
	pool := linePool(t, pipe)
	f := pool.NewBatcher(pipe, NewQueue(0), time.Millisecond, NewWindow(1), nil)
	undo := func(g *Batch) {
		f.endTurn(nil)
		pool.unreserve(g, pipe)
	}
	reserved := func(want string) {
		t.Helper()
		got := make(chan *Batch)
		go func() {
			g, err := f.Reserve(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- g
		}()
		if want == "" {
			undo(<-got)
			return
		}
		select {
		case <-got:
			t.Errorf("a batch is reserved %s", want)
		case <-time.After(20 * time.Millisecond):
			submitted := &Batch{bytes: 1}
			pool.releaseAll(submitted)
			undo(<-got)
		}
	}
	pool.memory.Force(pool.memory.limit + 1)
	reserved("") // no batch would return memory
	pool.payloads.Force(1)
	reserved("beyond the memory")
	pool.payloads.Force(1)
	f.midFrame.Store(true)
	reserved("")
	f.midFrame.Store(false)
	pool.memory.Give(1)
	reserved("")
	pool.payloads.Give(1)
	pool.memory.Give(pool.memory.limit)
}

// TestFramesExceedTheMemoryOneAtATime shows that only one partition of a device begins a batch with a frame that
// exceeds the memory. The next partition waits until that frame's memory is returned, even while no batch is
// submitted.
func TestFramesExceedTheMemoryOneAtATime(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{})
	pool := linePool(t, pipe)
	pool.SetLimit(1)
	pool.memory.Force(1) // prevents unpacking ahead
	first := pool.NewBatcher(pipe, NewQueue(0), time.Millisecond, NewWindow(1), nil)
	second := pool.NewBatcher(pipe, NewQueue(0), time.Millisecond, NewWindow(1), nil)
	g, err := first.Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reserved := make(chan error, 1)
	go func() {
		_, err := second.Reserve(t.Context())
		reserved <- err
	}()
	waits := func(while string) {
		t.Helper()
		select {
		case err := <-reserved:
			t.Fatalf("a second batch may begin with a frame while %s: %v", while, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	waits("the first one has not opened its frame")
	b, err := pool.begin(g, pipe)
	if err != nil {
		t.Fatal(err)
	}
	d := Delivery{Msg: &paperMsg{data: []byte("1\n2\n")}}
	pool.Unpack(&d)
	first.pack(b, g, d)
	waits("the first one's frame exceeds the memory")
	b.Release()
	g.Collected()
	pool.Recycle(g)
	select {
	case err := <-reserved:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the second batch waits with nothing in flight")
	}
}

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
			pool, err := NewPool([]*streams.Pipeline{pipe}, Options{
				Costs: NewCosts(operator.JSON, crc32c(b)), Split: frame.Splitter{Framing: frame.NewlineDelimited}, Decompress: c.decompress,
			})
			if err != nil {
				b.Fatal(err)
			}
			msg := &paperMsg{data: c.body}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d := Delivery{Msg: msg}
				pool.Unpack(&d)
				d.Frame.Open()
				g, err := pool.Reserve(b.Context(), pipe)
				if err != nil {
					b.Fatal(err)
				}
				batch, err := pool.begin(g, pipe)
				if err != nil {
					b.Fatal(err)
				}
				if !g.Pack(batch, d) {
					b.Fatal("the frame does not fit into a batch")
				}
				batch.Release()
				g.Collected()
				pool.Recycle(g)
			}
		})
	}
}
