package inflight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
	"millrace/internal/memory"
	"millrace/internal/streams"
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
	g := &Batch{Items: make([]Delivery, 100)}
	if n := testing.AllocsPerRun(1000, func() { g.Report(nil, nil) }); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestANoteKeepsTheLatestFaults(t *testing.T) {
	note := "nonsense a:b:c a:b"
	for i := range 5 {
		note = AddFault(note, OperatorFault{Operator: "entropy", Fault: "device", At: time.Unix(0, int64(i))})
	}
	note = AddFault(note, OperatorFault{Operator: "other", Fault: "deadline", At: time.Unix(0, 9)})
	if want := "entropy:device:2 entropy:device:3 entropy:device:4 other:deadline:9"; note != want {
		t.Errorf("the note is %q, want %q", note, want)
	}
	faults := ParseFaults(note)
	if len(faults) != 4 || faults[3].Operator != "other" || faults[3].Fault != "deadline" || faults[3].At.UnixNano() != 9 || !faults[3].Earlier {
		t.Errorf("faults %+v", faults)
	}
	for i := range 100 {
		note = AddFault(note, OperatorFault{Operator: fmt.Sprint("op", i), Fault: "device", At: time.Unix(0, int64(i))})
	}
	if n := len(ParseFaults(note)); n != maxInNote || !strings.HasSuffix(note, "op99:device:99") {
		t.Errorf("%d faults of many operators: %s", n, note)
	}
}

// TestFreeListGivesWhatCameLast shows that a free list reuses the item that was returned last. Taking one item at a time
// makes no other items.
func TestFreeListGivesWhatCameLast(t *testing.T) {
	made := 0
	s := NewFreeList(func() int { made++; return made })
	for range 10 {
		s.Put(s.Take())
	}
	if made != 1 {
		t.Errorf("%d items were made for one at a time", made)
	}
	first, second := s.Take(), s.Take()
	s.Put(first)
	s.Put(second)
	if got := s.Take(); got != second || made != 2 {
		t.Errorf("got item %d of %d, want the one that was returned last, %d", got, made, second)
	}
}

// TestCapacityIsWhatAWorkerHolds adds up the capacities of a worker's parts, for both schedules that a worker uses.
func TestCapacityIsWhatAWorkerHolds(t *testing.T) {
	t.Parallel()
	for _, schedule := range []streams.Schedule{streams.Overlapped, streams.Triple} {
		for _, c := range []struct{ devices, lanes, payloads, consumers int }{{1, 1, 1, 1}, {2, 3, 100, 4}} {
			w := memory.Worker{Slots: c.devices * memory.SlotsPerLane * c.lanes, BatchPayloads: c.payloads, Consumers: c.consumers}
			var pipes []*streams.Pipeline
			for range c.devices {
				pipes = append(pipes, testPipeline(t, hostDevice(t), streams.Options{Schedule: schedule, Lanes: c.lanes, BatchPayloads: c.payloads}))
			}
			p, err := NewPool(pipes, work(t))
			if err != nil {
				t.Fatal(err)
			}
			requests := memory.PendingRequests * pull.NewSize(jetstream.ConsumerConfig{}).Messages
			if got := p.Size()*w.BatchPayloads + w.Consumers*(QueueMax+requests); got != w.InFlight() {
				t.Errorf("%s, %+v: its parts hold %d payloads, and InFlight is %d", schedule.Name, c, got, w.InFlight())
			}
		}
	}
}
