package pull

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// inbox receives the responses to requests. In a priority group, each inbox belongs to one turn of this client (see turns), or to
// an attempt to get a turn.
type inbox struct {
	number uint64 // 1 for the first
	prefix string // prefix of the inbox's subjects; the request's number follows
	sub    *nats.Subscription
	fresh  time.Time // time of the latest request without a pin
}

// inboxesMax is the maximum number of inboxes of a pull. A message that arrives late on an older inbox is redelivered.
const inboxesMax = 4

// inboxes has the inboxes of one pull. All inboxes deliver to one channel. Only one goroutine may open and read inboxes, but any
// goroutine may call leave.
type inboxes struct {
	nc       *nats.Conn
	consumer string
	in       chan *nats.Msg
	subs     atomic.Int32  // subscriptions that deliver to in
	ended    chan struct{} // closed when nothing more arrives on in
	end      sync.Once     // guards the close of ended
	opened   uint64        // number of inboxes so far
	leaving  atomic.Bool   // whether leave was called, which ends requests

	mu   sync.Mutex
	list []*inbox // newest last; only the goroutine that opens inboxes changes it, with mu held
}

// open opens another inbox. It closes the oldest if there are more than inboxesMax.
func (s *inboxes) open() (*inbox, error) {
	b := &inbox{number: s.opened + 1, prefix: s.nc.NewInbox() + "."}
	s.subs.Add(1)
	var err error
	if b.sub, err = s.nc.ChanSubscribe(b.prefix+"*", s.in); err != nil {
		s.subs.Add(-1)
		return nil, fmt.Errorf("pull from consumer %q: %w", s.consumer, err)
	}
	b.sub.SetClosedHandler(func(string) {
		if s.subs.Add(-1) == 0 {
			s.end.Do(func() { close(s.ended) })
		}
	})
	s.opened = b.number
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving.Load() { // leave ran before the inbox was in the list
		_ = b.sub.Unsubscribe()
	}
	s.list = append(s.list, b)
	if len(s.list) > inboxesMax {
		_ = s.list[0].sub.Unsubscribe() // fails only on a closed connection, which Next detects
		s.list = append(s.list[:0], s.list[1:]...)
	}
	return b, nil
}

func (s *inboxes) last() *inbox { return s.list[len(s.list)-1] }

// numbered returns the inbox with the given number, or nil if it no longer exists.
func (s *inboxes) numbered(number uint64) *inbox {
	for _, b := range s.list {
		if b.number == number {
			return b
		}
	}
	return nil
}

// of returns the inbox on which raw arrived, or nil if that inbox no longer exists.
func (s *inboxes) of(raw *nats.Msg) *inbox {
	for i := len(s.list) - 1; i >= 0; i-- {
		if s.list[i].sub == raw.Sub {
			return s.list[i]
		}
	}
	return nil
}

// answered returns the number and the inbox of the request that the status message raw answers. ok is false if raw answers no
// request on an open inbox.
func (s *inboxes) answered(raw *nats.Msg) (number uint64, on *inbox, ok bool) {
	if on = s.of(raw); on == nil {
		return 0, nil, false
	}
	text, ok := strings.CutPrefix(raw.Subject, on.prefix)
	if !ok {
		return 0, nil, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, on, err == nil
}

// leave ends the inboxes with end. An inbox that is opened afterwards ends at once.
func (s *inboxes) leave(end func(*nats.Subscription) error) {
	s.leaving.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.list {
		_ = end(b.sub) // an error means that the subscription has already ended
	}
}

// age computes, for each message taken from a queue, a lower bound of its arrival time. Only the goroutine that takes messages
// may use it.
type age struct {
	taken uint64    // number of messages taken so far
	at    time.Time // time of the latest mark call
	until uint64    // number of messages that were taken or waiting at the latest mark call
	since time.Time // lower bound of the arrival time for the first until messages
}

// mark records waiting, the number of messages in the queue at the time now.
func (a *age) mark(now time.Time, waiting int) {
	a.since, a.at, a.until = a.at, now, a.taken+uint64(waiting)
}

// took records that one message was taken, and returns a lower bound of its arrival time. left is the number of messages that remain.
func (a *age) took(left int) time.Time {
	a.taken++
	if a.taken <= a.until {
		return a.since
	}
	// The message arrived after the latest mark call.
	now := time.Now()
	came := pause.Process().Since(a.at, now)
	a.mark(now, left)
	a.since = came // some waiting messages may have arrived just after came
	return came
}
