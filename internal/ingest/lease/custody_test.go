package lease

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

func waitingFor(pin string) *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: 1, PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: pin}}}
}

// TestCustodyOfPartitionsThatNoWorkerTakes checks the custody of a partition that the members assign to another
// worker.
func TestCustodyOfPartitionsThatNoWorkerTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	m := r.idleLease().m // the members have assigned no partition to this worker
	c, start := m.watch.custody, time.Now()
	wants := func(p int) bool {
		mine, _ := m.members.Mine(p)
		return mine
	}
	saw := func(after time.Duration, info *jetstream.ConsumerInfo) bool {
		c.saw(1, info, start.Add(after))
		return wants(1)
	}
	if saw(0, waitingFor("")) || saw(orphanAfter-1, waitingFor("")) {
		t.Error("a partition is taken before its next owner can have begun")
	}
	if saw(orphanAfter, waitingFor("somebody")) || saw(2*orphanAfter, waitingFor("")) {
		t.Error("one is taken that had an owner just now")
	}
	if saw(3*orphanAfter, &jetstream.ConsumerInfo{}) || saw(4*orphanAfter, waitingFor("")) {
		t.Error("one is taken in which nothing waited just now")
	}
	if !saw(5*orphanAfter, waitingFor("")) {
		t.Error("nobody takes what nobody has")
	}
	if wants(0) {
		t.Error("another partition is taken with it")
	}
	if saw(6*orphanAfter, waitingFor("somebody")) {
		t.Error("it is still wanted though somebody else has it")
	}

	// The partition returns to this worker whenever it gave the partition away and no worker took it. The worker
	// keeps it longer each time.
	now := start.Add(time.Hour)
	for _, hold := range []time.Duration{minHold, 2 * minHold, 4 * minHold, 8 * minHold, 16 * minHold, maxHold, maxHold} {
		c.gave(1)
		c.saw(1, waitingFor(""), now)
		c.began(1, now)
		m.members.Has(1, true)
		c.saw(1, waitingFor("me"), now.Add(hold))
		if !wants(1) {
			t.Errorf("it is given away within %v", hold)
		}
		now = now.Add(hold + 1)
		c.saw(1, waitingFor("me"), now)
		if wants(1) {
			t.Errorf("it is kept for longer than %v", hold)
		}
		m.members.Has(1, false)
	}
	for name, meanwhile := range map[string]*jetstream.ConsumerInfo{
		"that another had meanwhile": waitingFor("somebody"), "in which nothing waited": {},
	} {
		c.gave(1)
		c.saw(1, meanwhile, now)
		c.began(1, now)
		if wants(1) {
			t.Errorf("a partition %s is kept", name)
		}
	}
	c.gave(1)
	c.saw(1, waitingFor(""), now)
	c.saw(1, waitingFor("somebody"), now)
	c.began(1, now)
	if wants(1) {
		t.Error("a partition that another took after a while is kept")
	}
}

// TestWhatAWorkerIsCutOffFromItHasNotGivenAway shows that a disconnected worker has not given away a partition that
// the members still assign to it.
func TestWhatAWorkerIsCutOffFromItHasNotGivenAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	m := r.idleLease().m
	membership, leave := context.WithCancel(r.Ctx())
	defer leave()
	go m.members.Run(membership)
	if !m.members.Await(r.Ctx(), 1, true) {
		t.Fatal("a worker that is alone is given nothing")
	}
	if m.watch.custody.gave(1) {
		t.Error("a partition that is this worker's counts as given away")
	}
	if m.watch.custody.saw(1, waitingFor(""), time.Now()); len(m.watch.custody.open()) != 0 {
		t.Errorf("partitions %v are looked at as if nobody might take them", m.watch.custody.open())
	}
}

// TestAPartitionThatWasGivenAwayIsLookedAt shows that a worker checks a partition that it gave away, until another
// worker has it.
func TestAPartitionThatWasGivenAwayIsLookedAt(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	c := r.idleLease().m.watch.custody // the members have assigned no partition to this worker
	if open := c.open(); len(open) != 0 {
		t.Errorf("partitions %v are looked at, and none was given away", open)
	}
	c.gave(1)
	if open := c.open(); !slices.Equal(open, []int{1}) {
		t.Errorf("partitions %v are looked at, want 1, which was given away", open)
	}
	c.saw(1, waitingFor("somebody"), time.Now())
	if open := c.open(); len(open) != 0 {
		t.Errorf("partitions %v are looked at, and another worker has what was given away", open)
	}
}

// TestExclusiveReportsTheWholeBacklog shows that a worker reports the backlog of all partitions. A delivery changes
// only its own partition's share.
func TestExclusiveReportsTheWholeBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	const n = 60
	r.publish(n, document)
	w := r.mode(r.hostPipeline()).watch
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	r.Until("the backlog of all partitions is told", func() bool { return r.events.waiting() == n })
	stop()
	<-done
	maximum, shares := 0, 0
	for p, share := range w.backlog.pending.of {
		if share > w.backlog.pending.of[maximum] {
			maximum = p
		}
		if share > 0 {
			shares++
		}
	}
	if shares < 2 {
		t.Fatalf("all messages are in one partition: %v", w.backlog.pending.of)
	}
	left := n - w.backlog.pending.of[maximum]
	if w.backlog.update(maximum, 0); r.events.waiting() != left {
		t.Errorf("%d wait when the largest share is gone, want %d", r.events.waiting(), left)
	}
}

// TestExclusiveReportsWhatIsUnderWay checks the total number of messages that are delivered and not acknowledged,
// regardless of the worker that holds them.
func TestExclusiveReportsWhatIsUnderWay(t *testing.T) {
	e := newEvents()
	b := newBacklog(e, 3)
	for _, step := range []struct {
		partition, unacknowledged int
		total                     uint64
	}{{0, 10, 10}, {2, 5, 15}, {0, 4, 9}, {1, 1, 10}, {2, 0, 5}, {0, -1, 1}} {
		if b.delivered(step.partition, step.unacknowledged); e.underWay() != step.total {
			t.Errorf("partition %d has %d: the total is %d, want %d", step.partition, step.unacknowledged, e.underWay(), step.total)
		}
	}
	if e.waiting() != 0 {
		t.Errorf("%d messages wait, want none", e.waiting())
	}
}

// TestRestartsThatKeepComingAreAWarning shows that repeated restarts are logged as warnings. The first restarts are
// normal recovery.
func TestRestartsThatKeepComingAreAWarning(t *testing.T) {
	t.Parallel()
	log := natstest.NewLog(t)
	var r restarts
	start := time.Now()
	for i := range 100 { // 20 s in total
		r.say(log.Logger(), errPinLost, start.Add(time.Duration(i)*200*time.Millisecond))
	}
	if info, warn := log.Count("level=INFO"), log.Count("level=WARN"); info != 2 || warn != 2 {
		t.Errorf("%d lines and %d warnings, want 2 and 2", info, warn)
	}
	if !log.Has("not_logged=") {
		t.Error("what was not logged is not counted")
	}
	r.say(log.Logger(), errPinLost, start.Add(time.Hour))
	if info := log.Count("level=INFO"); info != 3 {
		t.Errorf("one that comes an hour later is a warning too")
	}
}
