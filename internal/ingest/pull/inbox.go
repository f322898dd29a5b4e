package pull

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// inbox receives the answers to requests. In a priority group it belongs to one turn of this client, or to an attempt
// to get a turn.
type inbox struct {
	number uint64 // 1 for the first
	prefix string // of its subjects; a request's number follows
	sub    *nats.Subscription
	fresh  time.Time // when the request without a pin was made
}

// inboxesMost is the maximum number of inboxes of a pull. A message that arrives late on an older one is delivered
// again.
const inboxesMost = 4

// inboxes are the inboxes of one pull. They bring everything to one channel. One goroutine opens and reads them; drain and stop
// are for any.
type inboxes struct {
	nc       *nats.Conn
	consumer string
	in       chan *nats.Msg
	subs     atomic.Int32  // subscriptions that deliver to in
	ended    chan struct{} // closed when nothing more arrives on in
	end      sync.Once     // guards the close of ended
	opened   uint64        // number of inboxes so far
	leaving  atomic.Bool   // drain or stop was called: nothing more is to be asked for

	mu   sync.Mutex
	list []*inbox // the latest last; changed by who opens one, with mu held
}

// open opens another inbox.
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
	if s.leaving.Load() { // stop or drain has not seen it
		_ = b.sub.Unsubscribe()
	}
	s.list = append(s.list, b)
	if len(s.list) > inboxesMost {
		_ = s.list[0].sub.Unsubscribe() // it fails only on a closed connection, which is detected elsewhere
		s.list = append(s.list[:0], s.list[1:]...)
	}
	return b, nil
}

// last is the latest inbox.
func (s *inboxes) last() *inbox { return s.list[len(s.list)-1] }

// numbered is the inbox with that number; nil for one that is no more.
func (s *inboxes) numbered(number uint64) *inbox {
	for _, b := range s.list {
		if b.number == number {
			return b
		}
	}
	return nil
}

// of returns the inbox on which raw arrived; nil if that inbox no longer exists.
func (s *inboxes) of(raw *nats.Msg) *inbox {
	for i := len(s.list) - 1; i >= 0; i-- {
		if s.list[i].sub == raw.Sub {
			return s.list[i]
		}
	}
	return nil
}

// answered returns the number of the request that a status message answers, and its inbox. ok is false if it answers
// none.
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

// drain ends the inboxes once everything that the server sent has come.
func (s *inboxes) drain() {
	s.leave(func(b *inbox) { _ = b.sub.Drain() }) // it fails only if the subscription has already ended
}

// stop ends the inboxes at once.
func (s *inboxes) stop() {
	s.leave(func(b *inbox) { _ = b.sub.Unsubscribe() }) // as in Drain
}

// leave calls end for each inbox. One that is opened later ends at once.
func (s *inboxes) leave(end func(*inbox)) {
	s.leaving.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.list {
		end(b)
	}
}
