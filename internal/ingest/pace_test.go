package ingest

import (
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/streams"
)

// newPaceOf makes one of shared delivery for which so many batches are enough.
func newPaceOf(enough int32) *pace {
	p := newPace(1)
	p.enough = enough
	return p
}

func TestPaceTellsEveryWaiter(t *testing.T) {
	p := newPaceOf(2)
	waiters := []<-chan struct{}{p.join(), p.join(), p.join()}
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
	if p.kept() || p.behind() {
		t.Error("enough batches are on their way before there is one")
	}
	for range 4 {
		p.start()
		p.store()
	}
	p.end(true)
	p.end(true)
	if n := told(); !p.kept() || !p.behind() || n > 0 {
		t.Errorf("two of four have ended: two are enough, and %d were told otherwise", n)
	}
	p.end(true)
	if n := told(); p.kept() || p.behind() || n != 3 || told() > 0 {
		t.Errorf("one is left where two are enough: %d of 3 were told, each once", n)
	}
	p.end(true)
	for range 5 { // more than once before anybody looks: nobody is held up
		p.start()
		p.end(false)
	}
	if n := told(); n != 3 {
		t.Errorf("%d of 3 were told", n)
	}
}

// TestPaceCountsWhatTheDeviceIsDoneWith has batches on the device and few to be stored: another is computed beside them, but goes
// at once only if few are under way.
func TestPaceCountsWhatTheDeviceIsDoneWith(t *testing.T) {
	p := newPaceOf(2)
	eased := p.join()
	for range 4 {
		p.start()
	}
	p.store()
	if !p.kept() || p.behind() {
		t.Errorf("four under way, one of them to be stored: kept %v, behind %v, want true and false", p.kept(), p.behind())
	}
	p.store()
	if !p.behind() {
		t.Error("two of them are to be stored, which is enough, and one more is not behind")
	}
	p.end(true)
	if !p.kept() || p.behind() {
		t.Errorf("one of those has ended: kept %v, behind %v, want true and false", p.kept(), p.behind())
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
	a, b := newPaceInOrder(&all), newPaceInOrder(&all)
	for _, step := range []struct {
		what    string
		do      func()
		a, b, n bool // kept, and more than none under way
	}{
		{"nothing is under way", func() {}, false, false, false},
		{"one batch of one partition", a.start, false, false, true},
		{"two of it", a.start, true, false, true},
		{"one of each", func() { a.end(false); b.start() }, true, true, true},
		{"one of the other", func() { a.end(false) }, false, false, true},
		{"nothing again", func() { b.end(false) }, false, false, false},
	} {
		step.do()
		if a.kept() != step.a || b.kept() != step.b || a.behind() != step.a || (all.Load() > 0) != step.n {
			t.Errorf("%s: kept %v and %v with %d under way, want %v and %v", step.what, a.kept(), b.kept(), all.Load(), step.a, step.b)
		}
	}
}

// TestSmallBatchWaitsWhileEnoughAreOnTheirWay fills batches whose lane is idle, while two others are on their way and two are
// enough.
func TestSmallBatchWaitsWhileEnoughAreOnTheirWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.pipeline(hostDevice(t), streams.Config{Lanes: 1, BatchPayloads: 10})
	for _, c := range []struct {
		name   string
		linger time.Duration
		shared bool          // results are stored in no order
		stored bool          // and those of two others are being stored, with a third on the device
		more   int           // payloads after the first
		open   time.Duration // how long it then stays open, though the linger is over
		ends   bool          // the other batch, after that
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
		in, pace := newQueue(0), newPaceInOrder(&atomic.Int32{})
		if c.shared {
			pace = newPaceOf(2)
		}
		for range 2 {
			pace.start()
			if c.stored {
				pace.store()
			}
		}
		if c.stored {
			pace.start()
		}
		f := newBatcher(p, in, c.linger, pace)
		b, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		payload := delivery{msg: &paperMsg{data: make([]byte, 10)}, received: start}
		g, closed := &group{}, make(chan streams.CloseReason, 1)
		f.add(b, g, payload)
		go func() { closed <- f.fill(b, g) }()
		for range c.more {
			select {
			case in.ch <- payload: // it has not closed
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
			pace.end(c.stored)
		}
		select {
		case why := <-closed:
			if b.Rows() != 1+c.more || why != c.want {
				t.Errorf("%s: %d payloads in a batch closed by %v, want %d and %v", c.name, b.Rows(), why, 1+c.more, c.want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the batch does not close", c.name)
		}
		if took, late := time.Since(start), c.shared == c.stored; !c.ends && c.want == streams.ClosedByLinger && (took >= paceWait) != late {
			t.Errorf("%s: the batch closed after %v, and the longer wait is %v", c.name, took, paceWait)
		}
		b.Release()
	}
}

// TestOneBatchFillsAtATime has two fill batches at once: what comes goes into one until it is full, and then into the other.
func TestOneBatchFillsAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	w := r.prepare(hostDevice(t), streams.Config{Lanes: 2, BatchPayloads: 3}).worker
	in, pace := newQueue(0), newPaceOf(1)
	pace.start() // so that no batch closes before it is full
	f := newBatcher(w.pipes[0], in, 2*patience, pace)
	ready, filled := make(chan struct{}), make(chan int, 2)
	for range 2 {
		go func() {
			g, err := w.reserve(t.Context(), f.pipe)
			if err != nil {
				t.Error(err)
				return
			}
			ready <- struct{}{}
			b, _, err := w.pack(f, g)
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
			case in.ch <- delivery{msg: &paperMsg{data: make([]byte, 10)}, received: time.Now()}:
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
