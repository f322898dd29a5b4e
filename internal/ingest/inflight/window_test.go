package inflight

import (
	"sync/atomic"
	"testing"
)

// of returns a window for shared delivery that is full once it has enough batches.
func of(enough int32) *Window {
	p := NewWindow(1)
	p.size = enough
	return p
}

func TestPaceTellsEveryWaiter(t *testing.T) {
	p := of(2)
	waiters := []chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)}
	p.notifies(waiters)
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
	eased := make(chan struct{}, 1)
	p.notifies([]chan struct{}{eased})
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
