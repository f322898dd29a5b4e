package members

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
)

type worker struct {
	*Members
	leave func()
}

func join(r *natstest.Rig, partitions int, id string) worker {
	r.Helper()
	m, err := Join(r.Connect(r.URL), "EVENTS", "millrace", partitions, id)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() { m.Run(ctx); close(ended) }()
	return worker{m, func() { cancel(); <-ended }}
}

// awaitShares waits until every partition belongs to exactly one worker, and all workers have equal shares. Each
// worker adopts its assigned partitions and gives up all others.
func awaitShares(r *natstest.Rig, partitions int, all ...worker) {
	r.Helper()
	r.Until(fmt.Sprintf("%d workers have equal shares of all partitions", len(all)), func() bool {
		shares, owners := make([]int, len(all)), make([]int, partitions)
		for i, w := range all {
			for p := range partitions {
				mine, _ := w.Mine(p)
				w.Has(p, mine)
				if mine {
					shares[i]++
					owners[p]++
				}
			}
		}
		return !slices.ContainsFunc(owners, func(n int) bool { return n != 1 }) &&
			!slices.ContainsFunc(shares, func(n int) bool { return n < partitions/len(all) || n > (partitions+len(all)-1)/len(all) })
	})
}

// TestTheFirstDecisionWaits shows that a new worker claims nothing during its first beat. It must first receive the
// announcement of every other worker.
func TestTheFirstDecisionWaits(t *testing.T) {
	t.Parallel()
	r := natstest.New(t)
	w := join(r, 1, "alone")
	defer w.leave()
	if !w.Await(r.Ctx(), 0, true) {
		t.Fatal("the only worker claims nothing")
	}
	if said := w.nc.Stats().OutMsgs; said < 3 { // one announcement at the start and one per beat
		t.Errorf("the worker claims a partition after only %d announcements, before every other worker has certainly announced itself", said)
	}
}

// TestStrangersAreBounded lets a stranger pretend to be many other workers and this worker, and send long announcements.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	m := &Members{id: "me", nonce: "mine", others: map[string]other{}, wanted: make([]bool, 4), assigned: make([]bool, 4), adopted: make([]bool, 4),
		owns: map[int]bool{}, change: make(chan struct{})}
	handle := func(text string) { m.handle(&nats.Msg{Data: []byte(text)}) }
	for i := range 3 * limit {
		handle(fmt.Sprintf(`{"id":"ghost-%d","owns":[0,1,2,3]}`, i))
	}
	handle(`{"id":"` + strings.Repeat("x", longestID+1) + `"}`)
	if len(m.others) != limit {
		t.Errorf("%d are remembered, want %d", len(m.others), limit)
	}
	m.others = map[string]other{}
	handle(`{"id":"much","owns":[0,1,2,3,0]}`)
	if len(m.others) != 0 {
		t.Error("a worker that claims more partitions than exist is believed")
	}
	handle(`{"id":"me","owns":[]}`)
	handle(`{"id":"me","nonce":"other"}`)
	if !m.echo.IsZero() || len(m.others) != 0 {
		t.Error("a stranger's announcement under this worker's ID counts as this worker's own")
	}
	handle(`{"id":"long","owns":[],"name":"` + strings.Repeat("x", longestName+1) + `"}`)
	if len(m.others) != 0 {
		t.Error("a long name is remembered")
	}
	if handle(`{"id":"me","nonce":"mine"}`); m.echo.IsZero() {
		t.Error("this worker's own announcement does not count")
	}
}

// TestMembersShareAllPartitions shows that running workers have equal shares while workers join and leave.
func TestMembersShareAllPartitions(t *testing.T) {
	t.Parallel()
	r := natstest.New(t)
	const partitions = 8
	var all []worker
	for i := range 3 {
		all = append(all, join(r, partitions, fmt.Sprint("w", i)))
		awaitShares(r, partitions, all...)
	}
	gave := owned(all[0], partitions)
	got := make(chan bool, 2)
	for _, w := range all[1:] {
		go func() { got <- w.Await(r.Ctx(), gave, true) }()
	}
	all[0].leave()
	if !<-got {
		t.Errorf("no worker wants partition %d, which belonged to the worker that left", gave)
	}
	awaitShares(r, partitions, all[1:]...)
	for _, w := range all[1:] {
		w.leave()
	}
}

// TestSharesNameTheOwners shows that a worker can list the names and partitions of all workers.
func TestSharesNameTheOwners(t *testing.T) {
	t.Parallel()
	r := natstest.New(t)
	one, two := join(r, 4, "one"), join(r, 4, "two")
	defer one.leave()
	awaitShares(r, 4, one, two)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s process %d", host, os.Getpid())
	r.Until("the share of the other is announced", func() bool {
		s := one.Shares()
		return len(s) == 2 && len(s[0].Owns) == 2 && len(s[1].Owns) == 2
	})
	s := one.Shares()
	if !s[0].Self || s[1].Self || s[0].Name != name || s[1].Name != name || !slices.Equal(slices.Sorted(slices.Values(slices.Concat(s[0].Owns, s[1].Owns))), []int{0, 1, 2, 3}) {
		t.Errorf("the shares are %+v", s)
	}
	two.leave()
	r.Until("the worker that left has no share", func() bool { return len(one.Shares()) == 1 })
}

func owned(w worker, partitions int) int {
	for p := range partitions {
		if mine, _ := w.Mine(p); mine {
			return p
		}
	}
	return -1
}

// TestPartitionsOfWhoIsGoneAreTaken shows that the partitions of a worker that announces its end are taken at once.
// The partitions of a dead worker are taken after a period of silence.
func TestPartitionsOfWhoIsGoneAreTaken(t *testing.T) {
	const partitions = 4
	now := time.Now()
	m := &Members{id: "me", others: map[string]other{}, echo: now, owns: map[int]bool{},
		assigned: make([]bool, partitions), adopted: make([]bool, partitions), wanted: make([]bool, partitions), change: make(chan struct{})}
	say := func(text string) {
		m.handle(&nats.Msg{Data: []byte(text)})
	}
	want := func(what string, n int) {
		t.Helper()
		mine := 0
		for p := range partitions {
			if is, _ := m.Mine(p); is {
				mine++
			}
		}
		if mine != n {
			t.Errorf("%s: this worker should own %d partitions, want %d", what, mine, n)
		}
	}
	const there = `{"id": "other", "owns": [0, 1, 2, 3]}`
	say(there)
	m.decide(now)
	want("beside another", partitions/2)
	say(`{"id": "other", "owns": [], "leaving": true}`)
	m.decide(now)
	want("when it leaves", partitions)

	say(there)
	m.decide(now)
	want("when it is back", partitions/2)
	later := time.Now().Add(gone + time.Millisecond)
	m.echo = later // this worker still receives its own announcements
	m.decide(later)
	want("when it has fallen silent", partitions)
}
