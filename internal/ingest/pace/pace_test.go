package pace

import (
	"sync/atomic"
	"testing"
)

// of makes one of shared delivery for which so many batches are enough.
func of(enough int32) *Pace {
	p := New(1)
	p.enough = enough
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
	if p.Kept() || p.Behind() {
		t.Error("enough batches are on their way before there is one")
	}
	for range 4 {
		p.Start()
		p.Store()
	}
	p.End(true)
	p.End(true)
	if n := told(); !p.Kept() || !p.Behind() || n > 0 {
		t.Errorf("two of four have ended: two are enough, and %d were told otherwise", n)
	}
	p.End(true)
	if n := told(); p.Kept() || p.Behind() || n != 3 || told() > 0 {
		t.Errorf("one is left where two are enough: %d of 3 were told, each once", n)
	}
	p.End(true)
	for range 5 { // more than once before anybody looks: nobody is held up
		p.Start()
		p.End(false)
	}
	if n := told(); n != 3 {
		t.Errorf("%d of 3 were told", n)
	}
}

// TestPaceCountsWhatTheDeviceIsDoneWith has batches on the device and few to be stored: another is computed beside them, but goes
// at once only if few are under way.
func TestPaceCountsWhatTheDeviceIsDoneWith(t *testing.T) {
	p := of(2)
	eased := p.Join()
	for range 4 {
		p.Start()
	}
	p.Store()
	if !p.Kept() || p.Behind() {
		t.Errorf("four under way, one of them to be stored: kept %v, behind %v, want true and false", p.Kept(), p.Behind())
	}
	p.Store()
	if !p.Behind() {
		t.Error("two of them are to be stored, which is enough, and one more is not behind")
	}
	p.End(true)
	if !p.Kept() || p.Behind() {
		t.Errorf("one of those has ended: kept %v, behind %v, want true and false", p.Kept(), p.Behind())
	}
	select {
	case <-eased:
	default:
		t.Error("nobody was told that fewer are to be stored, though enough are under way")
	}
}

// TestPaceOfAPartitionCountsTheOthers has two partitions of one worker.
func TestPaceOfAPartitionCountsTheOthers(t *testing.T) {
	var all atomic.Int32
	a, b := NewInOrder(&all), NewInOrder(&all)
	for _, step := range []struct {
		what    string
		do      func()
		a, b, n bool // kept, and more than none under way
	}{
		{"nothing is under way", func() {}, false, false, false},
		{"one batch of one partition", a.Start, false, false, true},
		{"two of it", a.Start, true, false, true},
		{"one of each", func() { a.End(false); b.Start() }, true, true, true},
		{"one of the other", func() { a.End(false) }, false, false, true},
		{"nothing again", func() { b.End(false) }, false, false, false},
	} {
		step.do()
		if a.Kept() != step.a || b.Kept() != step.b || a.Behind() != step.a || (all.Load() > 0) != step.n {
			t.Errorf("%s: kept %v and %v with %d under way, want %v and %v", step.what, a.Kept(), b.Kept(), all.Load(), step.a, step.b)
		}
	}
}
