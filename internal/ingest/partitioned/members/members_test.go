package members

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/embedded"
)

// patience is how long the workers may take to agree.
const patience = 20 * time.Second

// worker is a running member with its own connection.
type worker struct {
	*Members
	leave func()
}

func join(t *testing.T, url string, partitions int, id string) worker {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	m, err := Join(nc, "EVENTS", "millrace", partitions, id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.Run(ctx); close(ended) }()
	return worker{m, func() { cancel(); <-ended }}
}

// awaitShares waits until every partition belongs to exactly one worker, and all have equal shares. Each worker takes
// its assigned partitions and gives up the others.
func awaitShares(t *testing.T, partitions int, all ...worker) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
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
		good := true
		for _, n := range owners {
			good = good && n == 1
		}
		for _, n := range shares {
			good = good && n >= partitions/len(all) && n <= (partitions+len(all)-1)/len(all)
		}
		if good {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%d workers have shares %v, and the partitions so many owners: %v", len(all), shares, owners)
		}
	}
}

// TestTheFirstDecisionWaits: a new worker must have received an announcement of every other worker, which takes one
// beat, before it claims anything.
func TestTheFirstDecisionWaits(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	start := time.Now()
	w := join(t, s.URL(), 1, "alone")
	defer w.leave()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !w.Await(ctx, 0, true) {
		t.Fatal("the only worker claims nothing")
	}
	if after := time.Since(start); after < 2*beat {
		t.Errorf("it claims a partition after %v, and another may not have spoken for %v", after, beat)
	}
}

// TestStrangersAreBounded: a stranger pretends to be many workers and to be this one, and sends long announcements.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	m := &Members{id: "me", nonce: "mine", others: map[string]other{}, wanted: make([]bool, 4), assigned: make([]bool, 4), adopted: make([]bool, 4),
		owns: map[int]bool{}, change: make(chan struct{})}
	handle := func(text string) { m.handle(&nats.Msg{Data: []byte(text)}) }
	for i := range 3 * most {
		handle(fmt.Sprintf(`{"id":"ghost-%d","owns":[0,1,2,3]}`, i))
	}
	handle(`{"id":"` + strings.Repeat("x", longestID+1) + `"}`)
	if len(m.others) != most {
		t.Errorf("%d are remembered, want %d", len(m.others), most)
	}
	m.others = map[string]other{}
	handle(`{"id":"much","owns":[0,1,2,3,0]}`)
	if len(m.others) != 0 {
		t.Error("one that claims more partitions than there are is believed")
	}
	handle(`{"id":"me","owns":[]}`)
	handle(`{"id":"me","nonce":"other"}`)
	if !m.echo.IsZero() || len(m.others) != 0 {
		t.Error("what another says under this worker's name counts as its own echo")
	}
	if handle(`{"id":"me","nonce":"mine"}`); m.echo.IsZero() {
		t.Error("its own echo does not count")
	}
}

// TestMembersShareAllPartitions: workers come and go, and the running ones always have equal shares.
func TestMembersShareAllPartitions(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	const partitions = 8
	var all []worker
	for i := range 3 {
		all = append(all, join(t, s.URL(), partitions, fmt.Sprint("w", i)))
		awaitShares(t, partitions, all...)
	}
	gave := owned(all[0], partitions)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan bool, 2)
	for _, w := range all[1:] {
		go func() { got <- w.Await(ctx, gave, true) }()
	}
	all[0].leave()
	if !<-got {
		t.Errorf("nobody is to have partition %d, which the worker that left had", gave)
	}
	awaitShares(t, partitions, all[1:]...)
	for _, w := range all[1:] {
		w.leave()
	}
}

// owned returns a partition that is assigned to a worker.
func owned(w worker, partitions int) int {
	for p := range partitions {
		if mine, _ := w.Mine(p); mine {
			return p
		}
	}
	return -1
}
