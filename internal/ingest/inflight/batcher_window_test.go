package inflight

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

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
			f := plenty().NewBatcher(p, in, c.linger, others, nil)
			b, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			payload := Delivery{Msg: &paperMsg{data: make([]byte, 10)}, Received: start}
			g, closed := &Batch{}, make(chan streams.CloseReason, 1)
			g.Pack(b, payload)
			go func() { closed <- f.Fill(b, g) }()
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
	all, err := NewPool([]*streams.Pipeline{pipe}, Options{Costs: NewCosts(operator.JSON, crc32c(t))})
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
			g, err := all.Reserve(t.Context(), f.Pipe)
			if err != nil {
				t.Error(err)
				return
			}
			ready <- struct{}{}
			b, _, err := f.Next(g)
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
