// Package members tracks the workers that share a stream's partitions, and assigns each partition to one of them.
// Package lease uses it. Start reading at Members.
package members

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	// beat is the interval at which a worker announces itself and its partitions.
	beat = 500 * time.Millisecond

	// gone is the time without an announcement after which a worker is considered gone.
	gone = 4 * beat

	// limit is the maximum number of other workers that are tracked. A client with permission to publish on the subject
	// can pretend to be any number of workers.
	limit = 256

	// longestID and longestName are the length limits of a worker's id and name, in bytes.
	longestID, longestName = 64, 128
)

// Members tracks the workers that share a stream's partitions, and the partitions that this worker should own. Workers
// announce themselves in plain NATS messages, which no stream stores. A worker that stops announcing itself is
// considered gone. If workers see different members, two workers may want the same partition, but the server pins only
// one of them. An announcement doesn't prove that its sender is a worker. The caller can Adopt a partition that its
// assigned owner doesn't take.
type Members struct {
	nc      *nats.Conn
	subject string
	id      string
	name    string // human-readable
	sub     *nats.Subscription

	mu       sync.Mutex
	others   map[string]other // by ID
	echo     time.Time        // time when this worker last received its own announcement; see deaf
	nonce    string           // random value that identifies this worker's own announcements
	owns     map[int]bool     // the partitions that this worker owns
	assigned []bool           // by partition: whether Assign gives it to this worker
	adopted  []bool           // by partition: whether this worker takes it regardless of Assign
	wanted   []bool           // by partition: assigned or adopted, unless this worker is deaf
	change   chan struct{}    // closed when wanted changes
}

// other is the last announcement of another worker.
type other struct {
	name string
	owns []int
	at   time.Time
}

// announcement is the message that workers send each other.
type announcement struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Owns    []int  `json:"owns"`
	Leaving bool   `json:"leaving,omitempty"`
	Nonce   string `json:"nonce,omitempty"`
}

// subject returns the subject on which the workers of a consumer announce themselves.
func subject(stream, consumer string) string {
	return fmt.Sprintf("millrace.members.%s.%s", stream, consumer)
}

// Join subscribes to the announcements of a consumer's workers. Run announces this worker under id. For human readers,
// the announcements also contain its host and process.
func Join(nc *nats.Conn, stream, consumer string, partitions int, id string) (*Members, error) {
	host, _ := os.Hostname() // without a host name, the process number identifies the worker
	m := &Members{
		nc: nc, subject: subject(stream, consumer), id: id, name: fmt.Sprintf("%.100s process %d", host, os.Getpid()),
		others: map[string]other{}, echo: time.Now(), nonce: nuid.Next(), owns: map[int]bool{},
		assigned: make([]bool, partitions), adopted: make([]bool, partitions), wanted: make([]bool, partitions), change: make(chan struct{}),
	}
	var err error
	if m.sub, err = nc.Subscribe(m.subject, m.handle); err != nil {
		return nil, fmt.Errorf("listen to the other workers on %q: %w", m.subject, err)
	}
	return m, nil
}

func (m *Members) handle(msg *nats.Msg) {
	var said announcement
	if json.Unmarshal(msg.Data, &said) != nil || said.ID == "" || len(said.ID) > longestID || len(said.Name) > longestName {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.others[said.ID]
	switch {
	case said.ID == m.id:
		if said.Nonce == m.nonce {
			m.echo = time.Now()
		}
	case said.Leaving:
		delete(m.others, said.ID)
	case len(said.Owns) <= len(m.wanted) && (known || len(m.others) < limit):
		m.others[said.ID] = other{said.Name, said.Owns, time.Now()}
	}
}

// Run announces this worker and updates the partitions that it should own, until ctx is done. It makes the first
// decision after all other workers have had time to announce themselves. Otherwise a new worker would claim partitions
// that other workers own.
func (m *Members) Run(ctx context.Context) {
	defer m.leave()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	m.announce(false)
	for first := true; ; first = false {
		select {
		case <-tick.C:
			m.announce(false)
			if !first {
				m.decide(time.Now())
			}
		case <-ctx.Done():
			return
		}
	}
}

// announce publishes the partitions that this worker owns. If that fails, the connection is down, and other workers
// consider this worker gone. A deaf worker announces that it leaves, because other workers may still receive its
// messages.
func (m *Members) announce(leaving bool) {
	m.mu.Lock()
	say := announcement{ID: m.id, Name: m.name, Owns: slices.Sorted(maps.Keys(m.owns)), Leaving: leaving || m.isDeaf(time.Now()), Nonce: m.nonce}
	m.mu.Unlock()
	text, err := json.Marshal(say)
	if err == nil {
		_ = m.nc.Publish(m.subject, text)
	}
}

func (m *Members) leave() {
	m.announce(true)
	_ = m.sub.Unsubscribe()
}

// isDeaf reports whether this worker has stopped receiving its own announcements. Such a worker doesn't receive the
// announcements of other workers either. The caller holds m.mu.
func (m *Members) isDeaf(now time.Time) bool { return now.Sub(m.echo) > gone }

// decide removes workers that are gone, and assigns the partitions again.
func (m *Members) decide(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.others, func(_ string, o other) bool { return now.Sub(o.at) > gone })
	all := []Member{{ID: m.id, Owns: slices.Collect(maps.Keys(m.owns))}}
	for id, o := range m.others {
		all = append(all, Member{ID: id, Owns: o.owns})
	}
	for p, owner := range Assign(len(m.wanted), m.subject, all) {
		m.assigned[p] = owner == m.id
	}
	m.want(now)
}

// want updates wanted from assigned and adopted. It closes change if an entry of wanted changes. The caller holds m.mu.
func (m *Members) want(now time.Time) {
	deaf, changed := m.isDeaf(now), false
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

// Adopt makes this worker take a partition regardless of Assign. If take is false, it ends the adoption.
func (m *Members) Adopt(p int, take bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adopted[p] = take
	m.want(time.Now())
}

// Standing reports whether this worker owns a partition, and whether Assign gives it to this worker.
func (m *Members) Standing(p int) (owned, assigned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owns[p], m.assigned[p]
}

// Mine reports whether this worker should own a partition. It also returns a channel that is closed when the answer may
// have changed.
func (m *Members) Mine(p int) (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted[p], m.change
}

// Await waits until Mine(p) reports want. It returns false if ctx is done first.
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

// Owned returns the number of partitions that this worker owns.
func (m *Members) Owned() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owns)
}

// Share is a worker's announcement.
type Share struct {
	Name string // host and process; not verified for other workers
	Self bool   // whether this is the calling worker
	Owns []int  // partitions that the worker announced; not verified for other workers
}

// Shares returns the share of this worker, followed by the shares of the other workers, sorted by name.
func (m *Members) Shares() []Share {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []Share{{m.name, true, slices.Sorted(maps.Keys(m.owns))}}
	for id, o := range m.others {
		all = append(all, Share{cmp.Or(o.name, id), false, slices.Sorted(slices.Values(o.owns))})
	}
	slices.SortFunc(all[1:], func(a, b Share) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Has records whether this worker owns a partition.
func (m *Members) Has(p int, owns bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if owns {
		m.owns[p] = true
	} else {
		delete(m.owns, p)
	}
}
