package partitioned

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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
