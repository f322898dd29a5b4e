package inflight

import (
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

func TestBatcherDoesNotAllocate(t *testing.T) {
	const payloads = 4000
	p := testPipeline(t, hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 2 * payloads})
	in := NewQueue(1)
	f := plenty(t, p).NewBatcher(p, in, time.Minute, NewWindow(1), nil)
	g := &Batch{}
	d := Delivery{Msg: &paperMsg{data: make([]byte, 100)}, Received: time.Now()}
	fill := func() float64 {
		b, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		defer g.Clear()
		g.Pack(b, d)
		allocs := testing.AllocsPerRun(payloads, func() {
			if !in.Put(t.Context(), d) {
				t.Fatal("there was no room")
			}
			if why, closed := f.place(b, g, <-in.ch, true); closed {
				t.Fatalf("the batch closed by %v", why)
			}
		})
		if b.Rows() != payloads+2 { // AllocsPerRun makes one more run to warm up
			t.Fatalf("%d payloads in the batch, want %d", b.Rows(), payloads+2)
		}
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
			in, others, enough := NewQueue(0), NewOrderedWindow(&atomic.Int32{}), 2
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
			f := plenty(t, p).NewBatcher(p, in, c.linger, others, nil)
			b, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			payload := Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: start}
			g, closed := &Batch{}, make(chan streams.CloseReason, 1)
			g.Pack(b, payload)
			go func() { closed <- f.fill(b, g) }()
			for range c.more {
				select {
				case in.ch <- payload: // the batch is still open
				case <-time.After(patience):
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
	in, others := NewQueue(0), NewWindow(1)
	for range 4 { // keeps batches open until they are full
		others.Enter()
	}
	f := all.NewBatcher(pipe, in, 2*patience, others, nil)
	ready, filled := make(chan struct{}), make(chan int, 2)
	for range 2 {
		go func() {
			g, err := f.Reserve(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			ready <- struct{}{}
			b, _, err := f.Next(g, 0)
			if err != nil {
				t.Error(err)
				return
			}
			filled <- b.Rows()
			b.Release()
		}()
	}
	<-ready
	<-ready
	for batch := range 2 {
		for range 3 {
			select {
			case in.ch <- Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()}:
			case <-time.After(patience):
				t.Fatal("nobody takes a payload")
			}
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
	f := plenty(t, p).NewBatcher(p, NewQueue(0), linger, others, nil)
	b, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	g, closed := &Batch{}, make(chan streams.CloseReason, 1)
	g.Pack(b, Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: time.Now()})
	d.late = linger
	go func() { closed <- f.fill(b, g) }()
	select {
	case why := <-closed:
		if why != streams.ClosedByLinger {
			t.Errorf("closed by %v", why)
		}
	case <-time.After(patience / 2):
		f.in.Close() // ends Fill
		<-closed
		t.Error("the linger begins with the first look at the batch")
	}
}

// of returns a window for shared delivery that is full once it has enough batches.
func of(enough int32) *Window {
	p := NewWindow(1)
	p.size = enough
	return p
}

func TestPaceTellsEveryWaiter(t *testing.T) {
	p := of(2)
	waiters := []<-chan struct{}{p.Join(), p.Join(), p.Join()}
	told := func() (n int) {
		for _, eased := range waiters {
			select {
			case <-eased:
				n++
			default:
			}
		}
		return n
	}
	if p.IsFull() || p.PublishFull() {
		t.Error("enough batches are on their way before there is one")
	}
	for range 4 {
		p.Enter()
		p.StartPublish()
	}
	p.Leave(true)
	p.Leave(true)
	if n := told(); !p.IsFull() || !p.PublishFull() || n > 0 {
		t.Errorf("two of four have ended: two are enough, and %d were told otherwise", n)
	}
	p.Leave(true)
	if n := told(); p.IsFull() || p.PublishFull() || n != 3 || told() > 0 {
		t.Errorf("one is left where two are enough: %d of 3 were told, each once", n)
	}
	p.Leave(true)
	for range 5 { // more signals than receives; none may block
		p.Enter()
		p.Leave(false)
	}
	if n := told(); n != 3 {
		t.Errorf("%d of 3 were told", n)
	}
}

// TestPaceCountsWhatTheDeviceIsDoneWith has batches on the device and few that are being published. Another batch is
// computed concurrently, but is submitted at once only if few batches are in flight.
func TestPaceCountsWhatTheDeviceIsDoneWith(t *testing.T) {
	p := of(2)
	eased := p.Join()
	for range 4 {
		p.Enter()
	}
	p.StartPublish()
	if !p.IsFull() || p.PublishFull() {
		t.Errorf("four under way, one of them to be stored: kept %v, behind %v, want true and false", p.IsFull(), p.PublishFull())
	}
	p.StartPublish()
	if !p.PublishFull() {
		t.Error("two of them are to be stored, which is enough, and one more is not behind")
	}
	p.Leave(true)
	if !p.IsFull() || p.PublishFull() {
		t.Errorf("one of those has ended: kept %v, behind %v, want true and false", p.IsFull(), p.PublishFull())
	}
	select {
	case <-eased:
	default:
		t.Error("nobody was told that fewer are to be stored, though enough are under way")
	}
}

// TestPaceOfAPartitionCountsTheOthers checks the windows of two partitions of one worker.
func TestPaceOfAPartitionCountsTheOthers(t *testing.T) {
	var all atomic.Int32
	a, b := NewOrderedWindow(&all), NewOrderedWindow(&all)
	for _, step := range []struct {
		what    string
		do      func()
		a, b, n bool // whether a is full, b is full, and any batch is in flight
	}{
		{"nothing is under way", func() {}, false, false, false},
		{"one batch of one partition", a.Enter, false, false, true},
		{"two of it", a.Enter, true, false, true},
		{"one of each", func() { a.Leave(false); b.Enter() }, true, true, true},
		{"one of the other", func() { a.Leave(false) }, false, false, true},
		{"nothing again", func() { b.Leave(false) }, false, false, false},
	} {
		step.do()
		if a.IsFull() != step.a || b.IsFull() != step.b || a.PublishFull() != step.a || (all.Load() > 0) != step.n {
			t.Errorf("%s: kept %v and %v with %d under way, want %v and %v", step.what, a.IsFull(), b.IsFull(), all.Load(), step.a, step.b)
		}
	}
}
