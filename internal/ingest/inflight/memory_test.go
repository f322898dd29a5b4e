package inflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// asking takes n bytes in its own goroutine and returns a channel that receives the result.
func asking(ctx context.Context, b *budget, n int64) <-chan error {
	got := make(chan error, 1)
	go func() { got <- b.take(ctx, n) }()
	synctest.Wait()
	return got
}

// plenty returns a pool with so much memory that nothing waits for memory.
func plenty() *Pool { return &Pool{holdings: holdings{memory: budget{limit: 1 << 40}}} }

func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		if err := b.take(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		easy := b.isShort()
		large, small := asking(t.Context(), b, 90), asking(t.Context(), b, 10)
		if len(large)+len(small) != 0 {
			t.Error("a small one overtook a large one, or a large one exceeded the budget")
		}
		if !isOver(easy) || !isOver(b.isShort()) {
			t.Error("nobody is told that somebody waits")
		}
		b.Give(49)
		synctest.Wait()
		if len(large)+len(small) != 0 {
			t.Error("somebody went on without room")
		}
		b.Give(11)
		synctest.Wait()
		if len(large) != 1 || len(small) != 1 {
			t.Error("not everybody went on with room")
		}
		if isOver(b.isShort()) {
			t.Error("somebody is said to wait, and nobody does")
		}
		if limit, used, waits := b.read(); limit != 100 || used != 100 || waits != 2 {
			t.Errorf("%d of %d are used after %d waits, want 100 of 100 after 2", used, limit, waits)
		}
	})
}

// TestBudgetTakesAnySinglePayload shows that a payload larger than the whole budget gets memory once no other payload
// holds memory.
func TestBudgetTakesAnySinglePayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		b.Force(1)
		huge := asking(t.Context(), b, 1000)
		if len(huge) != 0 {
			t.Fatal("it did not wait for the others")
		}
		b.Give(1)
		synctest.Wait()
		if len(huge) != 1 {
			t.Fatal("it waits with nothing else held")
		}
		next := asking(t.Context(), b, 1)
		if len(next) != 0 {
			t.Error("another went beside it")
		}
		b.Give(1000)
		synctest.Wait()
		if len(next) != 1 {
			t.Error("the next did not follow")
		}
	})
}

// TestBudgetIsAwaited shows that await takes no memory. The end of a pipeline or of a context ends the wait.
func TestBudgetIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		never, over := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.await(ctx, never); err != nil {
			t.Fatal(err)
		}
		b.Force(250) // a batch may exceed the budget
		got, ended := make(chan error, 3), make(chan error, 1)
		for range 2 {
			go func() { got <- b.await(t.Context(), never) }()
		}
		go func() { got <- b.await(t.Context(), over) }()
		go func() { ended <- b.await(ctx, never) }()
		synctest.Wait()
		close(over)
		cancel()
		synctest.Wait()
		if len(got) != 1 || <-got != nil {
			t.Error("the end of a pipeline does not end the wait for room: its Take says why")
		}
		if len(ended) != 1 || !errors.Is(<-ended, context.Canceled) {
			t.Error("the end of the context does not end the wait, or is not said")
		}
		b.Give(150)
		synctest.Wait()
		if len(got) != 0 {
			t.Error("somebody went on with nothing left")
		}
		b.Give(1)
		synctest.Wait()
		if len(got) != 2 || <-got != nil || <-got != nil {
			t.Error("not everybody went on with some left")
		}
		if _, used, _ := b.read(); used != 99 {
			t.Errorf("%d are used, want 99", used)
		}
	})
}

// TestBudgetLetsGo shows that a waiter that stops waiting takes nothing and no longer blocks later waiters.
func TestBudgetLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		b.Force(50)
		ctx, cancel := context.WithCancel(t.Context())
		large, small := asking(ctx, b, 90), asking(t.Context(), b, 50)
		cancel()
		synctest.Wait()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("take = %v, want the context's error", err)
		}
		if len(small) != 1 || <-small != nil {
			t.Error("one that there is room for still waits")
		}
		if _, used, _ := b.read(); used != 100 {
			t.Errorf("%d are used, want 100", used)
		}
	})
}

// TestThePoolDividesItsMemory shows that used memory and memory that is kept for reuse never exceed the pool's share
// in total.
func TestThePoolDividesItsMemory(t *testing.T) {
	t.Parallel()
	pipes := []*streams.Pipeline{testPipeline(t, hostDevice(t), streams.Options{})}
	settings := Options{Costs: NewCosts(operator.JSON, crc32c(t)), Fixed: 10 << 20, Largest: 1 << 20}
	for _, mib := range []int64{24, 32, 64, 2048} {
		settings.Memory = mib << 20
		p, err := NewPool(pipes, settings)
		if err != nil {
			t.Fatalf("%d MiB: %v", mib, err)
		}
		if all := p.memory.limit + p.retained.max + settings.Fixed; all > settings.Memory {
			t.Errorf("all of it together may take %d MiB of %d", all>>20, mib)
		}
	}
	settings.Memory = 12 << 20
	if _, err := NewPool(pipes, settings); !errors.Is(err, ErrMemory) {
		t.Errorf("with too little memory: %v, want ErrMemory", err)
	}
}

// TestTheMemoryCoversALargestFrame shows that a pool's minimum memory grows with the limits of frames, for each
// pipeline. Deliveries in flight leave that much memory free.
func TestTheMemoryCoversALargestFrame(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	costs := NewCosts(operator.JSON, crc32c(t))
	pipe := func() *streams.Pipeline { return testPipeline(t, hostDevice(t), streams.Options{}) }
	pipes := []*streams.Pipeline{pipe(), pipe()}
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		costs      Costs
	}{
		"neither framed nor compressed":   {frame.None, compression.None, costs},
		"framed":                          {frame.NewlineDelimited, compression.None, costs},
		"compressed":                      {frame.None, compression.Gzip, costs},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, costs},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, costs},
		"by the headers":                  {frame.Auto, compression.Auto, costs},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, costs.Compressed()},
	} {
		o := Options{
			Costs: c.costs, Split: frame.Splitter{Framing: c.framing, MaxRecords: 1000, MaxBytes: 64 << 20}, Decompress: c.decompress,
			Fixed: 10 << 20, Largest: payload,
		}
		messages := unpack.Options{Split: o.Split, Decompress: o.Decompress, Results: c.costs.results}
		frames := int64(len(pipes)) * messages.MaxBytes(payload)
		minimum := o.Fixed + o.minimum(payload) + frames
		o.Memory = minimum - 1
		_, err := NewPool(pipes, o)
		if !errors.Is(err, ErrMemory) || strings.Contains(err.Error(), "MILLRACE_FRAME_BYTES") != messages.Splits() {
			t.Errorf("%s: with a byte too little: %v", name, err)
		}
		o.Memory = minimum
		p, err := NewPool(pipes, o)
		if err != nil {
			t.Errorf("%s: with %d bytes: %v", name, minimum, err)
			continue
		}
		if all := p.memory.limit + p.retained.max + o.Fixed + frames; all > o.Memory {
			t.Errorf("%s: with the largest frames all of it may take %d bytes of %d", name, all, o.Memory)
		}
	}
}

type variable struct{ operator.Operator }

func (variable) MaxStrings() (maximum, perByte int)                    { return 100, 2 }
func (variable) AppendStrings(dst, _ []byte, _ []uint32, _ int) []byte { return dst }

// TestByteStringsCostMemory shows that a payload's cost and the minimum memory include its longest byte strings. JSON
// doubles the size of byte strings.
func TestByteStringsCostMemory(t *testing.T) {
	t.Parallel()
	ops := crc32c(t)
	plain, texts := NewCosts(operator.JSON, ops), NewCosts(operator.JSON, []operator.Operator{variable{ops[0]}})
	if got := texts.perPayload() - plain.perPayload(); got < 200 {
		t.Errorf("the byte strings of an empty payload cost %d bytes, want at least 200", got)
	}
	if texts.perByte < 4 || plain.perByte != 0 {
		t.Errorf("a byte costs %d bytes, want at least 4, and without byte strings %d", texts.perByte, plain.perByte)
	}
	const largest = 1 << 20
	with, without := Options{Costs: texts, Largest: largest}, Options{Costs: plain, Largest: largest}
	if got := with.minimum(8<<20) - without.minimum(8<<20); got < 2*4*largest {
		t.Errorf("the least memory grows by %d bytes, want at least %d", got, 2*4*largest)
	}
}

// waiting puts deliveries of the given sizes in its own goroutine. The function in returns the number of queued
// deliveries once all goroutines block.
func waiting(t *testing.T, q *Queue, sizes ...int) (in func() int) {
	t.Helper()
	n := 0
	go func() {
		for _, size := range sizes {
			if !q.Put(t.Context(), Delivery{Msg: &paperMsg{data: make([]byte, size)}}) {
				return
			}
			n++
		}
	}()
	return func() int {
		synctest.Wait()
		return n
	}
}

func (q *Queue) take(t *testing.T) {
	t.Helper()
	select {
	case d := <-q.ch:
		q.took(d)
	default:
		t.Fatal("nothing waits")
	}
}

// TestQueueIsBounded shows that the queue limits number and bytes, and accepts a single payload of any size.
func TestQueueIsBounded(t *testing.T) {
	const half = queueBytes / 2
	for name, c := range map[string]struct {
		sizes []int
		want  []int // number of queued deliveries, first before any take and then after each take
	}{
		"small":          {[]int{1, 1, 1, 1, 1}, []int{4, 5}},
		"empty":          {[]int{0, 0, 0, 0, 0}, []int{4, 5}},
		"large":          {[]int{half, half, half, half}, []int{2, 3, 4}},
		"too large":      {[]int{4 * half, 4 * half, 1}, []int{1, 2, 3}},
		"behind a small": {[]int{1, 4 * half, 1}, []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(4)
				in := waiting(t, q, c.sizes...)
				for taken, want := range c.want {
					if got := in(); got != want {
						t.Errorf("%d were put when %d had been taken, want %d", got, taken, want)
					}
					q.take(t)
				}
			})
		})
	}
}

// TestQueueCountsHeaders shows that headers count like payloads, because the queue holds both in memory.
func TestQueueCountsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, put := NewQueue(4), 0
		go func() {
			for range 3 {
				if q.Put(t.Context(), Delivery{Msg: &paperMsg{}, HeaderBytes: queueBytes / 2}) {
					put++
				}
			}
		}()
		if synctest.Wait(); put != 2 {
			t.Errorf("%d were put, want 2", put)
		}
		q.take(t)
		if synctest.Wait(); put != 3 {
			t.Errorf("%d were put after one was taken, want 3", put)
		}
	})
}

// TestQueueLetsGo shows that Put stops waiting for space when ctx ends, and no longer counts its delivery.
func TestQueueLetsGo(t *testing.T) {
	for name, size := range map[string]int{"for bytes": queueBytes, "for a place": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(1)
				d := Delivery{Msg: &paperMsg{data: make([]byte, size)}}
				if !q.Put(t.Context(), d) {
					t.Fatal("there was room")
				}
				ctx, end := context.WithCancel(t.Context())
				put := make(chan bool, 1)
				go func() { put <- q.Put(ctx, d) }()
				synctest.Wait()
				end()
				if <-put {
					t.Error("it was put")
				}
				q.take(t)
				if held := q.bytes.Load(); held != 0 {
					t.Errorf("%d bytes are held in an empty queue", held)
				}
			})
		})
	}
}
