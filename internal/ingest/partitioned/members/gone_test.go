package members

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

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
			t.Errorf("%s: %d partitions are to be this worker's, want %d", what, mine, n)
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
