package inflight

import (
	"context"
	"sync/atomic"

	"millrace/internal/ingest/capacity"
	"millrace/internal/ingest/pull"
)

// Queue holds deliveries between the pull and the batchers, so that neither has to wake the other for each delivery. It
// limits the number of deliveries and their bytes, because QueueMax payloads of the largest size would take most of a
// worker's memory. A single delivery may exceed the byte limit. Only one goroutine may call Put.
type Queue struct {
	ch    chan Delivery
	bytes atomic.Int64  // bytes of the queued deliveries
	room  chan struct{} // signalled when a delivery has left the queue
}

const (
	// QueueMax is the maximum number of queued deliveries.
	QueueMax = capacity.Queued

	// queueBytes is the maximum number of queued bytes, including headers. It equals the byte limit of a pull request.
	queueBytes = pull.RequestBytes
)

// NewQueue returns a queue for up to limit deliveries. If limit is 0, Put waits for Get.
func NewQueue(limit int) *Queue {
	return &Queue{ch: make(chan Delivery, limit), room: make(chan struct{}, 1)}
}

// Put waits for space and appends d. It returns false if ctx ends first.
func (q *Queue) Put(ctx context.Context, d Delivery) bool {
	n := int64(len(d.Msg.Data()) + d.HeaderBytes)
	for held := q.bytes.Load(); held > 0 && held+n > queueBytes; held = q.bytes.Load() {
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
	q.bytes.Add(n)
	select {
	case q.ch <- d:
		return true
	case <-ctx.Done():
		q.bytes.Add(-n)
		return false
	}
}

// Get waits for a delivery. It returns false if the queue is closed and empty.
func (q *Queue) Get() (Delivery, bool) {
	d, ok := <-q.ch
	if ok {
		q.took(d)
	}
	return d, ok
}

// TryGet is like Get, but doesn't wait. It returns false if the queue is empty.
func (q *Queue) TryGet() (Delivery, bool) {
	select {
	case d, ok := <-q.ch:
		if ok {
			q.took(d)
		}
		return d, ok
	default:
		return Delivery{}, false
	}
}

// took frees the space of d, which was received from q.ch.
func (q *Queue) took(d Delivery) {
	q.bytes.Add(-int64(len(d.Msg.Data()) + d.HeaderBytes))
	select {
	case q.room <- struct{}{}:
	default: // there is a token already
	}
}

// Close ends the queue. Get returns the remaining deliveries.
func (q *Queue) Close() { close(q.ch) }
