// Package members lets workers that share a stream's partitions know of one another, and agree on who is to have which.
package members

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/partition"
)

const (
	// beat is how often a worker tells the others that it is there, and which partitions it has.
	beat = 500 * time.Millisecond

	// gone is after how long without a word a worker counts as gone.
	gone = 4 * beat
)

// Members knows the workers that share a stream's partitions, and which partitions are to be this one's. They tell each
// other over plain NATS messages: nothing is stored, and who is not heard of is gone. Where workers see different others
// for a while, two may want one partition: the server lets only one have it.
type Members struct {
	nc      *nats.Conn
	subject string
	id      string
	sub     *nats.Subscription

	mu     sync.Mutex
	heard  map[string]heard // of the others
	echo   time.Time        // when this worker last heard itself: what it says arrives, and it hears
	owns   map[int]bool     // of this one
	wanted []bool           // by partition
	change chan struct{}    // closed when wanted changes
}

// heard is what another worker said last.
type heard struct {
	owns []int
	at   time.Time
}

// word is what workers tell each other.
type word struct {
	ID      string `json:"id"`
	Owns    []int  `json:"owns"`
	Leaving bool   `json:"leaving,omitempty"`
}

// subject is where the workers of a consumer tell each other.
func subject(stream, consumer string) string {
	return fmt.Sprintf("millrace.members.%s.%s", stream, consumer)
}

// Join makes this worker known under id to the others of a consumer, once Run is called.
func Join(nc *nats.Conn, stream, consumer string, partitions int, id string) (*Members, error) {
	m := &Members{
		nc: nc, subject: subject(stream, consumer), id: id,
		heard: map[string]heard{}, echo: time.Now(), owns: map[int]bool{}, wanted: make([]bool, partitions), change: make(chan struct{}),
	}
	var err error
	if m.sub, err = nc.Subscribe(m.subject, m.hear); err != nil {
		return nil, fmt.Errorf("listen to the other workers on %q: %w", m.subject, err)
	}
	return m, nil
}

func (m *Members) hear(msg *nats.Msg) {
	var said word
	if json.Unmarshal(msg.Data, &said) != nil || said.ID == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if said.ID == m.id {
		m.echo = time.Now()
		return
	}
	if said.Leaving {
		delete(m.heard, said.ID)
	} else {
		m.heard[said.ID] = heard{said.Owns, time.Now()}
	}
}

// Run tells and listens until ctx is done. The first decision comes after one that has been heard of would have spoken
// again, so that a worker that starts does not reach for what others have.
func (m *Members) Run(ctx context.Context) {
	defer m.leave()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	m.tell(false)
	for first := true; ; first = false {
		select {
		case <-tick.C:
			m.tell(false)
			if !first {
				m.decide(time.Now())
			}
		case <-ctx.Done():
			return
		}
	}
}

// tell says to the others what this worker has. Where that fails the connection is down, and they see it as gone. While it
// is deaf it says that it leaves: it may be heard, but nothing that it asks for arrives.
func (m *Members) tell(leaving bool) {
	m.mu.Lock()
	say := word{ID: m.id, Owns: slices.Sorted(maps.Keys(m.owns)), Leaving: leaving || m.deaf(time.Now())}
	m.mu.Unlock()
	text, err := json.Marshal(say)
	if err == nil {
		_ = m.nc.Publish(m.subject, text)
	}
}

func (m *Members) leave() {
	m.tell(true)
	_ = m.sub.Unsubscribe()
}

// deaf says whether this worker has not even heard itself for long. m.mu is held.
func (m *Members) deaf(now time.Time) bool { return now.Sub(m.echo) > gone }

// decide forgets who is gone, and sets what is to be this worker's.
func (m *Members) decide(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.heard, func(_ string, h heard) bool { return now.Sub(h.at) > gone })
	all := []partition.Member{{ID: m.id, Owns: slices.Collect(maps.Keys(m.owns))}}
	for id, h := range m.heard {
		all = append(all, partition.Member{ID: id, Owns: h.owns})
	}
	changed := false
	for p, owner := range partition.Assign(len(m.wanted), all) {
		if mine := owner == m.id && !m.deaf(now); m.wanted[p] != mine {
			m.wanted[p], changed = mine, true
		}
	}
	if changed {
		close(m.change)
		m.change = make(chan struct{})
	}
}

// Mine says whether a partition is to be this worker's, and gives what is closed when that may have changed.
func (m *Members) Mine(p int) (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted[p], m.change
}

// Await returns once Mine(p) is want, or false when ctx is done.
func (m *Members) Await(ctx context.Context, p int, want bool) bool {
	for ctx.Err() == nil {
		is, change := m.Mine(p)
		if is == want {
			return true
		}
		select {
		case <-change:
		case <-ctx.Done():
		}
	}
	return false
}

// Has notes whether this worker has a partition.
func (m *Members) Has(p int, owns bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if owns {
		m.owns[p] = true
	} else {
		delete(m.owns, p)
	}
}

// Claimed says whether another worker that is there has the partition.
func (m *Members) Claimed(p int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.heard {
		if slices.Contains(h.owns, p) {
			return true
		}
	}
	return false
}
