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
	"github.com/nats-io/nuid"

	"millrace/internal/ingest/partition"
)

const (
	// beat is how often a worker tells the others that it is there, and which partitions it has.
	beat = 500 * time.Millisecond

	// gone is after how long without a word a worker counts as gone.
	gone = 4 * beat

	// most is how many others are remembered. Whoever may publish on the subject can pose as any number of workers.
	most = 256

	// longestID is how long the name of a worker may be, in bytes.
	longestID = 64
)

// Members knows the workers that share a stream's partitions, and which partitions are to be this one's. They tell each
// other over plain NATS messages: nothing is stored, and who is not heard of is gone. Where workers see different others
// for a while, two may want one partition: the server lets only one have it. Nothing shows that a member that is heard of is
// a worker: what it is given and does not take is for the caller to Adopt.
type Members struct {
	nc      *nats.Conn
	subject string
	id      string
	sub     *nats.Subscription

	mu       sync.Mutex
	heard    map[string]heard // of the others
	echo     time.Time        // when this worker last heard itself: what it says arrives, and it hears
	nonce    string           // in what it says, so that nobody can pretend that
	owns     map[int]bool     // of this one
	assigned []bool           // by partition: what the members' agreement gives this one
	adopted  []bool           // by partition: what this one takes beside that
	wanted   []bool           // by partition: one of the two, unless it is deaf
	change   chan struct{}    // closed when wanted changes
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
	Nonce   string `json:"nonce,omitempty"`
}

// subject is where the workers of a consumer tell each other.
func subject(stream, consumer string) string {
	return fmt.Sprintf("millrace.members.%s.%s", stream, consumer)
}

// Join makes this worker known under id to the others of a consumer, once Run is called.
func Join(nc *nats.Conn, stream, consumer string, partitions int, id string) (*Members, error) {
	m := &Members{
		nc: nc, subject: subject(stream, consumer), id: id,
		heard: map[string]heard{}, echo: time.Now(), nonce: nuid.Next(), owns: map[int]bool{},
		assigned: make([]bool, partitions), adopted: make([]bool, partitions), wanted: make([]bool, partitions), change: make(chan struct{}),
	}
	var err error
	if m.sub, err = nc.Subscribe(m.subject, m.hear); err != nil {
		return nil, fmt.Errorf("listen to the other workers on %q: %w", m.subject, err)
	}
	return m, nil
}

func (m *Members) hear(msg *nats.Msg) {
	var said word
	if json.Unmarshal(msg.Data, &said) != nil || said.ID == "" || len(said.ID) > longestID {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.heard[said.ID]
	switch {
	case said.ID == m.id:
		if said.Nonce == m.nonce {
			m.echo = time.Now()
		}
	case said.Leaving:
		delete(m.heard, said.ID)
	case len(said.Owns) <= len(m.wanted) && (known || len(m.heard) < most):
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
	say := word{ID: m.id, Owns: slices.Sorted(maps.Keys(m.owns)), Leaving: leaving || m.deaf(time.Now()), Nonce: m.nonce}
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
	for p, owner := range partition.Assign(len(m.wanted), all) {
		m.assigned[p] = owner == m.id
	}
	m.want(now)
}

// want sets what is to be this worker's. m.mu is held.
func (m *Members) want(now time.Time) {
	deaf, changed := m.deaf(now), false
	for p := range m.wanted {
		if mine := (m.assigned[p] || m.adopted[p]) && !deaf; m.wanted[p] != mine {
			m.wanted[p], changed = mine, true
		}
	}
	if changed {
		close(m.change)
		m.change = make(chan struct{})
	}
}

// Adopt has this worker take a partition whatever the members agree on, or, with false, leaves it to that again.
func (m *Members) Adopt(p int, take bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adopted[p] = take
	m.want(time.Now())
}

// Standing says how this worker stands to a partition: whether it has it, and whether the members' agreement gives it that.
func (m *Members) Standing(p int) (owned, assigned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owns[p], m.assigned[p]
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

// Owned is how many partitions this worker has.
func (m *Members) Owned() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owns)
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
