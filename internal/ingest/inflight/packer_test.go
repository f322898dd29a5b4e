package inflight

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/streams"
)

type paperMsg struct {
	Message
	data []byte
}

func (m *paperMsg) Data() []byte { return m.data }

func (m *paperMsg) Headers() nats.Header { return nil }

func TestPackerDoesNotAllocate(t *testing.T) {
	const payloads = 4000
	p := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 2 * payloads})
	f, q := testPacker(t, plenty(t, p), p, time.Minute, NewWindow(1))
	d := Delivery{Msg: &paperMsg{data: make([]byte, 100)}, Received: time.Now()}
	fill := func() float64 {
		b, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		packed := &Packed{Batch: b}
		g := f.open(packed, q)
		defer f.pool.Recycle(g)
		f.pack(packed, g, d)
		allocs := testing.AllocsPerRun(payloads, func() {
			if !q.Put(t.Context(), d) {
				t.Fatal("there was no room")
			}
			if why, closed := f.enter(packed, <-f.feed.ready); closed {
				t.Fatalf("the batch closed by %v", why)
			}
		})
		if b.Rows() != payloads+2 { // AllocsPerRun makes one more run to warm up
			t.Fatalf("%d payloads in the batch, want %d", b.Rows(), payloads+2)
		}
		f.close(packed, streams.ClosedByBytes)
		return allocs
	}
	fill() // grows the group once
	if allocs := fill(); allocs != 0 {
		t.Errorf("%v allocations for each payload, want none", allocs)
	}
}

// TestSmallBatchWaitsWhileEnoughAreOnTheirWay fills batches while the lane is idle and the publish window is full.
func TestSmallBatchWaitsWhileEnoughAreOnTheirWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		linger time.Duration
		shared bool          // whether results are stored in any order
		stored bool          // whether all other batches are being stored, except one more on the device
		more   int           // number of payloads after the first
		open   time.Duration // time for which the batch stays open after the linger time
		ends   bool          // whether the other batch ends after that time
		want   streams.CloseReason
	}{
		{name: "the other one ends", linger: 2 * patience, more: 3, ends: true, want: streams.ClosedByLinger},
		{name: "it is full", linger: 2 * patience, more: 9, want: streams.ClosedByCount},
		{name: "the linger is over, and then the other one ends", linger: time.Millisecond, more: 3, open: 10 * time.Millisecond,
			ends: true, want: streams.ClosedByLinger},
		{name: "the other one never ends", linger: time.Millisecond, more: 3, want: streams.ClosedByLinger},
		{name: "the linger is over, where results are stored in no order", linger: time.Millisecond, shared: true, want: streams.ClosedByLinger},
		{name: "the linger is over, and they are being stored", linger: time.Millisecond, shared: true, stored: true, more: 3,
			open: 10 * time.Millisecond, ends: true, want: streams.ClosedByLinger},
		{name: "the linger is over, and they are being stored for ever", linger: time.Millisecond, shared: true, stored: true, want: streams.ClosedByLinger},
	} {
		synctest.Test(t, func(t *testing.T) { // the clock stops while any goroutine can run
			p := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 10})
			others, enough := NewOrderedWindow(&atomic.Int32{}), 2
			if c.shared {
				others, enough = NewWindow(1), 4
			}
			for range enough {
				others.Enter()
				if c.stored {
					others.StartPublish()
				}
			}
			if c.stored {
				others.Enter()
			}
			f, q := testPacker(t, plenty(t, p), p, c.linger, others)
			b, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			payload := Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: start}
			packed, closed := &Packed{Batch: b}, make(chan streams.CloseReason, 1)
			f.pack(packed, f.open(packed, q), payload)
			go func() { closed <- f.fill(packed) }()
			for range c.more {
				q.Put(t.Context(), payload)
				if synctest.Wait(); len(q.waiting) > 0 {
					t.Fatalf("%s: the batch takes no more", c.name)
				}
			}
			if c.open > 0 {
				select {
				case why := <-closed:
					t.Fatalf("%s: the batch closed by %v before that", c.name, why)
				case <-time.After(c.open):
				}
			}
			if c.ends {
				others.Leave(c.stored)
			}
			select {
			case why := <-closed:
				if b.Rows() != 1+c.more || why != c.want {
					t.Errorf("%s: %d payloads in a batch closed by %v, want %d and %v", c.name, b.Rows(), why, 1+c.more, c.want)
				}
			case <-time.After(patience):
				t.Fatalf("%s: the batch does not close", c.name)
			}
			if took, late := time.Since(start), c.shared == c.stored; !c.ends && c.want == streams.ClosedByLinger && (took >= WindowWait) != late {
				t.Errorf("%s: the batch closed after %v, and the longer wait is %v", c.name, took, WindowWait)
			}
			b.Release()
		})
	}
}

// TestOneBatchFillsAtATime fills two batches at once. Deliveries go into the first batch until it is full, and then
// into the second.
func TestOneBatchFillsAtATime(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 2, BatchPayloads: 3})
	all, err := NewPool([]*streams.Pipeline{pipe}, work(t))
	if err != nil {
		t.Fatal(err)
	}
	others := NewWindow(1)
	for range 4 { // keeps batches open until they are full
		others.Enter()
	}
	f, q := testPacker(t, all, pipe, 2*patience, others)
	ready, filled := make(chan struct{}), make(chan int, 2)
	for range 2 {
		go func() {
			ready <- struct{}{}
			p, err := f.Next(t.Context(), 0)
			if err != nil {
				t.Error(err)
				return
			}
			filled <- p.Batch.Rows()
			p.Batch.Release()
		}()
	}
	<-ready
	<-ready
	for batch := range 2 {
		for range 3 {
			q.Put(t.Context(), Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()})
		}
		select {
		case rows := <-filled:
			if rows != 3 {
				t.Errorf("batch %d closed with %d payloads, want 3", batch+1, rows)
			}
		case <-time.After(patience):
			t.Fatalf("three payloads have not filled batch %d: they are in several", batch+1)
		}
	}
}

// lateDevice is a device with an adjustable clock.
type lateDevice struct {
	device.Device
	late time.Duration
}

func (d *lateDevice) Now() time.Duration { return d.Device.Now() + d.late }

// TestLingerCountsFromTheOldestPayload checks a batch whose oldest payload has already waited for longer than the
// linger time. The batch must not wait for another payload.
func TestLingerCountsFromTheOldestPayload(t *testing.T) {
	t.Parallel()
	d := &lateDevice{Device: hostDevice(t)}
	p := testPipeline(t, d, streams.Options{Lanes: 1, BatchPayloads: 10})
	others := NewWindow(1)
	for range 4 {
		others.Enter() // an idle lane must not close the batch
	}
	const linger = 2 * patience
	f, q := testPacker(t, plenty(t, p), p, linger, others)
	b, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	packed, closed := &Packed{Batch: b}, make(chan streams.CloseReason, 1)
	f.pack(packed, f.open(packed, q), Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()})
	d.late = linger
	go func() { closed <- f.fill(packed) }()
	select {
	case why := <-closed:
		if why != streams.ClosedByLinger {
			t.Errorf("closed by %v", why)
		}
	case <-time.After(patience / 2):
		q.Close() // ends fill
		<-closed
		t.Error("the linger begins with the first look at the batch")
	}
}

// TestSharesAreEqual packs the deliveries of queues whose payloads have different sizes. As long as all queues have deliveries, each gets
// an equal share of the bytes, whatever the size of its payloads.
func TestSharesAreEqual(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 1 << 16})
	pool := plenty(t, pipe)
	feed := NewFeed()
	f := pool.NewPacker(pipe, feed, time.Minute)
	sizes := []int{1 << 10, 4 << 10, 100 << 10, 300 << 10}
	queues, bytes := make([]*Queue, len(sizes)), make([]int, len(sizes))
	for i, size := range sizes {
		queues[i] = pool.NewQueue(&testOwner{}, 1<<14, NewWindow(1))
		feed.Attach(queues[i])
		go func() {
			d := Delivery{Msg: &paperMsg{data: make([]byte, size)}, Received: time.Now()}
			for queues[i].Put(t.Context(), d) {
			}
		}()
	}
	for range 40 {
		for _, q := range queues { // no queue becomes empty
			q.wait(t.Context(), func() bool { return q.bytes > queueBytes/2 })
		}
		p, err := f.Next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range p.Groups {
			for i, q := range queues {
				if g.queue == q {
					bytes[i] += g.PayloadBytes()
				}
			}
			pool.Recycle(g)
		}
		p.Batch.Release()
	}
	total := 0
	for _, n := range bytes {
		total += n
	}
	for i, n := range bytes {
		if fair := total / len(bytes); n < fair*8/10 || n > fair*12/10 {
			t.Errorf("the queue of payloads of %d bytes got %d bytes of %d, and a fair share is %d", sizes[i], n, total, fair)
		}
	}
}

// TestGroupsOfABatch packs the deliveries of three queues into one batch, in turn. Each queue gets one group, whose spans name the rows of
// its deliveries.
func TestGroupsOfABatch(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 12})
	pool := plenty(t, pipe)
	feed := NewFeed()
	f := pool.NewPacker(pipe, feed, time.Minute)
	owners, queues := make([]*testOwner, 3), make([]*Queue, 3)
	for i := range queues {
		owners[i] = &testOwner{}
		queues[i] = pool.NewQueue(owners[i], QueueMax, NewWindow(1))
		feed.Attach(queues[i])
	}
	b, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	p := &Packed{Batch: b}
	for n := range 12 { // queue 0 has rows 0, 1, 4, 5, 8, 9
		q := []int{0, 0, 1, 2}[n%4]
		queues[q].Put(t.Context(), Delivery{Sequence: uint64(n), Msg: &paperMsg{data: make([]byte, 10)}})
		f.enter(p, <-feed.ready)
	}
	f.close(p, streams.ClosedByCount)
	for i, want := range [][]int{{0, 1, 4, 5, 8, 9}, {2, 6, 10}, {3, 7, 11}} {
		if len(owners[i].packed) != 1 {
			t.Fatalf("owner %d got %d groups", i, len(owners[i].packed))
		}
		g, rows := owners[i].packed[0], []int(nil)
		for first, s := range g.Spans {
			for k := range s.Rows {
				rows = append(rows, s.Row+k)
				if at := g.Source(first + k).Sequence; at != uint64(s.Row+k) {
					t.Errorf("row %d of group %d is delivery %d", s.Row+k, i, at)
				}
			}
		}
		if !slices.Equal(rows, want) || g.PayloadBytes() != 10*len(want) {
			t.Errorf("group %d has the rows %v and %d bytes, want %v", i, rows, g.PayloadBytes(), want)
		}
		pool.Recycle(g)
	}
	for _, q := range queues {
		q.Detach()
		q.AwaitIdle(t.Context())
	}
}

// TestAStalledQueueHoldsUpNoOther lets no group of one queue be recycled. The packer stops taking its deliveries once it has the maximum
// number of groups, and goes on with the other queue.
func TestAStalledQueueHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 2})
	pool := plenty(t, pipe)
	feed := NewFeed()
	f := pool.NewPacker(pipe, feed, time.Millisecond)
	stalled, other := pool.NewQueue(&testOwner{}, 1<<10, NewWindow(1)), pool.NewQueue(&testOwner{}, 1<<10, NewWindow(1))
	feed.Attach(stalled)
	feed.Attach(other)
	d := Delivery{Msg: &paperMsg{data: make([]byte, 10)}}
	for range 200 {
		stalled.Put(t.Context(), d)
		other.Put(t.Context(), d)
	}
	var kept []*Batch
	for done := 0; done < 30; {
		p, err := f.Next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range p.Groups {
			if g.queue == stalled {
				kept = append(kept, g)
				continue
			}
			done += len(g.Items)
			pool.Recycle(g)
			if done < 30 {
				other.Put(t.Context(), d)
			}
		}
		p.Batch.Release()
	}
	if len(kept) > pool.Size()+1 {
		t.Errorf("the stalled queue has %d groups, and %d are allowed", len(kept), pool.Size())
	}
	for _, g := range kept {
		pool.Recycle(g)
	}
	if p, err := f.Next(t.Context(), 0); err != nil || p.find(stalled) == nil {
		t.Errorf("the queue that can store again isn't served: %v", err)
	}
}

// TestDetachWaitsForNoLinger detaches a queue whose delivery is in an open batch, before and after the queue is closed. The packer then
// closes the batch at once.
func TestDetachWaitsForNoLinger(t *testing.T) {
	for _, closeFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1})
			window := NewWindow(1)
			for range 4 { // keeps the batch open
				window.Enter()
				window.StartPublish()
			}
			f, q := testPacker(t, plenty(t, pipe), pipe, time.Minute, window)
			packed := make(chan *Packed)
			go func() {
				p, _ := f.Next(t.Context(), 0)
				packed <- p
			}()
			q.Put(t.Context(), Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()})
			synctest.Wait() // the delivery is in the open batch
			start := time.Now()
			if closeFirst {
				q.Close()
			}
			go q.Detach()
			p := <-packed
			if took := time.Since(start); took > 0 || p.why != streams.ClosedByDrain {
				t.Errorf("the batch closed by %v after %v", p.why, took)
			}
			p.Batch.Release()
			q.Close()
		})
	}
}

// TestAPackerThatWaitsForMemoryHoldsNoBatch shows that a failed batch can be computed again while packers wait for its memory. Once its
// queue is detached, the packer gives the delivery back.
func TestAPackerThatWaitsForMemoryHoldsNoBatch(t *testing.T) {
	t.Parallel()
	pipe := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 4})
	pool := linePool(t, pipe)
	f, q := testPacker(t, pool, pipe, time.Millisecond, NewWindow(1))
	pool.Add(nil, pool.Limit+1, 1) // a frame in a submitted batch exceeds the limit
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if p, err := f.Next(ctx, 0); p != nil || err != nil {
			t.Errorf("a batch was packed without memory: %v", err)
		}
	}()
	q.Put(t.Context(), Delivery{Msg: &paperMsg{data: []byte("x")}, Received: time.Now()})
	q.wait(t.Context(), func() bool { return q.first == len(q.waiting) })
	var batches []*streams.Batch
	for range pipe.Slots() {
		b, err := pool.Acquire(t.Context(), pipe)
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	q.Detach()
	if n := len(q.owner.(*testOwner).unread); n != 1 {
		t.Errorf("%d deliveries were given back, want 1", n)
	}
	for _, b := range batches {
		b.Release()
	}
	end()
	<-ended
}
