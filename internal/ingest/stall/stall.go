// Package stall detects consumers that have messages but deliver none to any worker. Every fault that prevents delivery has this
// symptom, even if the fault itself is unknown.
//
// Both delivery modes report the state of their consumers to a Detector every Interval. The worker isn't ready while the Detector
// returns an error. Start reading at Detector.Saw.
package stall

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Interval is the time between two queries of a consumer's state, which includes the backlog.
	Interval = 5 * time.Second

	// stalledAfter is the default of Detector.After.
	stalledAfter = 30 * time.Second

	// unreadyAfter is the default of Detector.UnreadyAfter.
	unreadyAfter = 2 * time.Minute

	// warnEvery is the minimum time between two warnings about a consumer.
	warnEvery = time.Minute
)

// Detector tracks the consumers that have messages but deliver none, although a worker requests them. Several goroutines may call
// its methods.
type Detector struct {
	// After is the time without a delivery, and without an excuse, after which a consumer is stalled. A stalled consumer is
	// logged as a warning and counted in the metric. After UnreadyAfter, Err returns an error. Change both only before the first
	// Saw.
	After, UnreadyAfter time.Duration

	log      *slog.Logger
	observer Observer

	mu        sync.Mutex
	consumers []consumer
}

// Observer receives the number of stalled consumers.
type Observer interface {
	// Stalled is called after every report, mostly with 0.
	Stalled(consumers int)
}

// NewDetector returns a Detector for the given number of consumers.
func NewDetector(consumers int, log *slog.Logger, observer Observer) *Detector {
	return &Detector{
		After: stalledAfter, UnreadyAfter: unreadyAfter, log: log, observer: observer, consumers: make([]consumer, consumers),
	}
}

// Saw records the state of the i-th consumer. excused means that this worker has a reason to request no messages, or that another
// worker requests them.
func (d *Detector) Saw(i int, info *jetstream.ConsumerInfo, excused bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &d.consumers[i]
	seen := [4]uint64{info.Delivered.Consumer, info.Delivered.Stream, info.AckFloor.Consumer, info.AckFloor.Stream}
	moved := seen != c.seen
	c.seen, c.name, c.pending = seen, info.Name, info.NumPending
	full := info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending // no delivery until an acknowledgement
	switch {
	case moved, excused, full, info.Paused, info.NumPending == 0:
		if c.isStalled(now, d.After) {
			d.log.Info("the consumer is not stalled any more", "consumer", c.name)
		}
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = now
	case c.isStalled(now, d.After) && now.Sub(c.warned) >= warnEvery:
		c.warned = now
		d.log.Warn("the consumer has messages and delivers none, though this worker asks for them; see docs/runbooks/MillraceConsumerStalled.md",
			"consumer", c.name, "pending", info.NumPending, "for", now.Sub(c.since).Round(time.Second).String(),
			"unacknowledged", info.NumAckPending, "requests", info.NumWaiting)
	}
	d.notify(now)
}

// MarkUnknown records that the query for the i-th consumer failed. The time until the consumer is stalled starts again.
func (d *Detector) MarkUnknown(i int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.consumers[i].since = time.Time{}
	d.notify(now)
}

// Err returns an error if a consumer has delivered nothing for UnreadyAfter. The worker is then not ready.
func (d *Detector) Err(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.consumers {
		if c := &d.consumers[i]; c.isStalled(now, d.UnreadyAfter) {
			return fmt.Errorf("consumer %q has %d messages and has delivered none for %v", c.name, c.pending, now.Sub(c.since).Round(time.Second))
		}
	}
	return nil
}

// notify reports the number of stalled consumers to the observer. d.mu is held.
func (d *Detector) notify(now time.Time) {
	n := 0
	for i := range d.consumers {
		if d.consumers[i].isStalled(now, d.After) {
			n++
		}
	}
	d.observer.Stalled(n)
}

// consumer is the last reported state of a consumer.
type consumer struct {
	seen    [4]uint64 // sequences of the last delivery and of the acknowledgement floor
	since   time.Time // time of the first report without a new delivery; zero while the consumer delivers or is excused
	warned  time.Time // time of the last warning in the log
	name    string
	pending uint64
}

func (c *consumer) isStalled(now time.Time, after time.Duration) bool {
	return !c.since.IsZero() && now.Sub(c.since) >= after
}
