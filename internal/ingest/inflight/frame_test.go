package inflight

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// linePool returns a pool for frames of lines.
func linePool(t *testing.T, pipe *streams.Pipeline, decompress compression.Encoding) *Pool {
	t.Helper()
	p, err := NewPool([]*streams.Pipeline{pipe}, Settings{
		Costs: NewCosts(operator.JSON, crc32c(t)), Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxBytes: 64 << 20}, Decompress: decompress,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill packs as many records of a delivery as fit into a new batch, and returns the two.
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

// TestABatchThatIsCollectedLeavesItsOpenFrame: the frame's last batch may end first, and the frame is then given to another message.
// The batch must not keep that message alive, nor fail it.
func TestABatchThatIsCollectedLeavesItsOpenFrame(t *testing.T) {
	t.Parallel()
	for name, collected := range map[string]func(g *Batch){
		"at once":   func(g *Batch) { g.Collected() },
		"in pieces": func(g *Batch) { g.CollectedRows(g.UnsettledRows()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := testPipeline(t, hostDevice(t), streams.Config{BatchPayloads: 4})
			pool := linePool(t, pipe, compression.None)
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

// TestAFrameHoldsItsMemory: whatever way it is unpacked, it holds as much memory as its body takes, and gives back all.
func TestAFrameHoldsItsMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	body := bytes.Repeat(append(bytes.Repeat([]byte("a"), 127), '\n'), size/128)
	packed := gzipped(t, body)
	if size < 100*len(packed) {
		t.Fatalf("%d bytes are too many: the ratio must be far from the guess", len(packed))
	}
	pipe := testPipeline(t, hostDevice(t), streams.Config{})
	for _, c := range []struct {
		name   string
		limit  int64
		data   []byte
		open   func(*Frame) bool
		opened bool
		held   bool // whether it holds memory afterwards
	}{
		{"with enough", 64 << 20, packed, (*Frame).TryOpen, true, true},
		{"with too little", 512 << 10, packed, (*Frame).TryOpen, false, false},
		{"without waiting", 512 << 10, packed, func(f *Frame) bool { f.Open(); return true }, true, true},
		{"what is no gzip", 64 << 20, packed[:len(packed)/2], (*Frame).TryOpen, true, false},
	} {
		pool := linePool(t, pipe, compression.Gzip)
		pool.SetLimit(c.limit)
		pool.memory.force(1) // what is left is the limit: the first to take anything gets all it wants
		f := &Frame{}
		f.reset(pool.unpacker)
		f.d = Delivery{Msg: &paperMsg{data: c.data}}
		opened := c.open(f)
		used := pool.Memory().Used - 1
		if opened != c.opened || c.held && (used < size || used < int64(cap(f.body)) || used > 16*size) || !c.held && (used > 0 || cap(f.body) > 0) {
			t.Errorf("%s: opened %v with %d bytes for a body of %d", c.name, opened, used, cap(f.body))
		}
		f.drop()
		if used := pool.Memory().Used - 1; used != 0 {
			t.Errorf("%s: %d bytes are not given back", c.name, used)
		}
	}
}

// gzipped compresses data. It does not declare its size.
func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestABatchIsNotReservedBeyondTheMemory: while frames exceed the memory, the next one waits until a submitted batch has given some
// back. The rest of a frame that is in memory does not wait.
func TestABatchIsNotReservedBeyondTheMemory(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Config{})
	pool := linePool(t, pipe, compression.None)
	f := pool.NewBatcher(pipe, NewQueue(0), time.Millisecond, NewWindow(1), nil)
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
			pool.unreserve(<-got, pipe)
			return
		}
		select {
		case <-got:
			t.Errorf("a batch is reserved %s", want)
		case <-time.After(20 * time.Millisecond):
			submitted := &Batch{bytes: 1}
			pool.releaseAll(submitted)
			pool.unreserve(<-got, pipe)
		}
	}
	pool.memory.force(pool.memory.limit + 1)
	reserved("") // no batch would give memory back
	pool.payloads.force(1)
	reserved("beyond the memory")
	pool.payloads.force(1)
	f.midFrame.Store(true)
	reserved("")
	f.midFrame.Store(false)
	pool.memory.give(1)
	reserved("")
	pool.payloads.give(1)
	pool.memory.give(pool.memory.limit)
}
