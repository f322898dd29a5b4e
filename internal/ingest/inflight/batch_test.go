package inflight

import (
	"testing"
	"time"
)

// countedMsg is a message that counts the calls of InProgress.
type countedMsg struct {
	paperMsg
	told int
}

func (m *countedMsg) InProgress() error { m.told++; return nil }

func TestKeepAliveReportsUnsettledInputs(t *testing.T) {
	t.Parallel()
	const every = time.Second
	start := time.Now()
	g := &Batch{}
	var msgs [3]countedMsg
	if told := g.keepAlive(start.Add(time.Hour), every); told != 0 {
		t.Errorf("an empty group told of %d", told)
	}
	for i := range msgs {
		g.Add(Delivery{Msg: &msgs[i], Received: start.Add(time.Duration(i) * time.Millisecond)})
	}
	g.Settle(1)
	for _, c := range []struct {
		at   time.Duration
		want int
	}{
		{every - 1, 0}, // time since the oldest delivery
		{every, 2},
		{2*every - 1, 0}, // InProgress was just sent
		{2 * every, 2},
	} {
		if told := g.keepAlive(start.Add(c.at), every); told != c.want {
			t.Errorf("after %v told of %d, want %d", c.at, told, c.want)
		}
	}
	if got := [3]int{msgs[0].told, msgs[1].told, msgs[2].told}; got != [3]int{2, 0, 2} {
		t.Errorf("told %v times, want 2, 0, 2", got)
	}
	if got, want := g.Headroom(start.Add(2*every), 3*every), 3*every; got != want {
		t.Errorf("headroom of %v just after the server heard, want %v", got, want)
	}
	g.Clear()
	if told := g.keepAlive(start.Add(time.Hour), every); told != 0 {
		t.Errorf("a cleared group told of %d", told)
	}
}

func TestNakDelayGrowsToAMinute(t *testing.T) {
	t.Parallel()
	for deliveries, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute,
	} {
		if got := (&Delivery{NumDelivered: deliveries}).NakDelay(); got != want {
			t.Errorf("after %d deliveries a delay of %v, want %v", deliveries, got, want)
		}
	}
}

// TestBatchesWithoutAnObserverCostNothing shows that the end of a batch allocates no memory without an observer.
func TestBatchesWithoutAnObserverCostNothing(t *testing.T) {
	g, record := &Batch{Items: make([]Delivery, 100)}, &Record{}
	if n := testing.AllocsPerRun(1000, func() { g.Report(nil, record) }); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
