package ingest

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// stalledAfter is how long a consumer that has messages delivers none, with nothing to excuse it, before the log says so
	// and the metric counts it.
	stalledAfter = 30 * time.Second

	// unreadyAfter is after how long of that the worker is not ready any more.
	unreadyAfter = 2 * time.Minute

	// stalledSay is how often the log says it again.
	stalledSay = time.Minute
)

// stalls knows which consumers have messages, and deliver none to anybody, though a worker asks for them. That is what every
// fault comes to that keeps messages from being delivered, known or not.
type stalls struct {
	log            *slog.Logger
	observer       Observer
	after, unready time.Duration

	mu        sync.Mutex
	consumers []stall
}

// stall is what stalls knows of a consumer.
type stall struct {
	delivered, floor jetstream.SequenceInfo
	since            time.Time // when it was first seen like that; zero where it is not stalled
	said             time.Time // when the log last said so
	name             string
	pending          uint64
}

func newStalls(consumers int, log *slog.Logger, observer Observer) *stalls {
	return &stalls{log: log, observer: observer, after: stalledAfter, unready: unreadyAfter, consumers: make([]stall, consumers)}
}

// saw enters the state of the i-th consumer. excused says that this worker does not ask it for messages, for a reason of its
// own, or that another worker does.
func (s *stalls) saw(i int, info *jetstream.ConsumerInfo, excused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := &s.consumers[i]
	moved := sequences(info.Delivered) != sequences(it.delivered) || sequences(info.AckFloor) != sequences(it.floor)
	it.delivered, it.floor, it.name, it.pending = info.Delivered, info.AckFloor, info.Name, info.NumPending
	full := info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending // somebody has to acknowledge first
	switch {
	case moved, excused, full, info.Paused, info.NumPending == 0:
		if it.stalled(now, s.after) {
			s.log.Info("the consumer is not stalled any more", "consumer", it.name)
		}
		it.since = time.Time{}
	case it.since.IsZero():
		it.since = now
	case it.stalled(now, s.after) && now.Sub(it.said) >= stalledSay:
		it.said = now
		s.log.Warn("the consumer has messages and delivers none, though this worker asks for them; see docs/runbooks/MillraceConsumerStalled.md",
			"consumer", it.name, "pending", info.NumPending, "for", now.Sub(it.since).Round(time.Second).String(),
			"unacknowledged", info.NumAckPending, "requests", info.NumWaiting)
	}
	s.tell(now)
}

// unknown enters that the i-th consumer could not be asked: with the connection down nothing is known.
func (s *stalls) unknown(i int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumers[i].since = time.Time{}
	s.tell(now)
}

// sequences are those of i, without the time that the server adds.
func sequences(i jetstream.SequenceInfo) [2]uint64 { return [2]uint64{i.Consumer, i.Stream} }

func (it *stall) stalled(now time.Time, after time.Duration) bool {
	return !it.since.IsZero() && now.Sub(it.since) >= after
}

// tell tells the observer how many are stalled. s.mu is held.
func (s *stalls) tell(now time.Time) {
	n := 0
	for i := range s.consumers {
		if s.consumers[i].stalled(now, s.after) {
			n++
		}
	}
	s.observer.Stalled(n)
}

// err is why the worker is not ready; nil unless a consumer has been stalled for long.
func (s *stalls) err(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.consumers {
		if it := &s.consumers[i]; it.stalled(now, s.unready) {
			return fmt.Errorf("consumer %q has %d messages and has delivered none for %v", it.name, it.pending, now.Sub(it.since).Round(time.Second))
		}
	}
	return nil
}
