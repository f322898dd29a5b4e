package ingest

import (
	"testing"
	"time"

	"millrace/internal/streams"
)

func TestPaceEasesOneWaiterForEachBatchThatEnds(t *testing.T) {
	p := newPace(2, 3)
	eased := func() bool {
		select {
		case <-p.eased:
			return true
		default:
			return false
		}
	}
	if p.kept() {
		t.Error("enough batches are on their way before there is one")
	}
	for range 4 {
		p.start()
	}
	p.end()
	p.end()
	if !p.kept() || eased() {
		t.Error("two of four have ended: two are enough, and nobody is to be told otherwise")
	}
	p.end()
	if p.kept() || !eased() || eased() {
		t.Error("one is left where two are enough: that is to be said once")
	}
	p.end()
	for range 5 { // more tokens than may wait: nobody reads them, and nobody is held up
		p.start()
		p.end()
	}
	for range 3 {
		if !eased() {
			t.Error("a waiter got no token")
		}
	}
	if eased() {
		t.Error("there are more tokens than waiters")
	}
}

// TestSmallBatchWaitsWhileEnoughAreOnTheirWay fills batches whose lane is idle, while another batch is on its way and one is
// enough.
func TestSmallBatchWaitsWhileEnoughAreOnTheirWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.pipeline(hostDevice(t), streams.Config{Lanes: 1, BatchPayloads: 10})
	in, pace := make(chan delivery), newPace(1, 1)
	f := newBatcher(p, in, 2*patience, pace)
	payload := delivery{msg: &paperMsg{data: make([]byte, 10)}, received: time.Now()}
	for _, c := range []struct {
		name string
		more int // payloads after the first
		ends bool
		want streams.CloseReason
	}{
		{"the other one ends", 3, true, streams.ClosedByLinger},
		{"it is full", 9, false, streams.ClosedByCount},
	} {
		b, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pace.start()
		g, closed := &group{}, make(chan streams.CloseReason, 1)
		f.add(b, g, payload)
		go func() { closed <- f.fill(b, g) }()
		for range c.more {
			select {
			case in <- payload: // it has not closed
			case <-time.After(patience):
				t.Fatalf("%s: the batch takes no more", c.name)
			}
		}
		if c.ends {
			pace.end()
		}
		select {
		case why := <-closed:
			if b.Rows() != 1+c.more || why != c.want {
				t.Errorf("%s: %d payloads in a batch closed by %v, want %d and %v", c.name, b.Rows(), why, 1+c.more, c.want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the batch does not close", c.name)
		}
		b.Release()
		if !c.ends {
			pace.end()
		}
	}
}
