package inflight

import (
	"context"
	"sync/atomic"

	"millrace/internal/ingest/pull"
)

// Queue is where deliveries wait between the pull and the batchers, so that neither wakes the other for every single one. It is
// bounded by number, and by bytes once it holds more than one: 256 payloads of the largest size would be most of what a
// worker may take. One goroutine puts, any number may take.
type Queue struct {
	ch    chan Delivery
	bytes atomic.Int64  // of those in it
	room  chan struct{} // a token where something was taken since the putter last looked
}

const (
	// QueueMost is how many deliveries may wait.
	QueueMost = 256

	// queueBytes is how many bytes they may have together, headers included, if one alone has not more: what one request of
	// the pull brings.
	queueBytes = pull.RequestBytes
)

// NewQueue makes a queue for most deliveries; 0: each is handed over.
func NewQueue(most int) *Queue {
	return &Queue{ch: make(chan Delivery, most), room: make(chan struct{}, 1)}
}

// Put waits for room and hands d over. It reports false when ctx ended before.
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

// Get waits for a delivery. It reports false when the queue is closed and empty.
func (q *Queue) Get() (Delivery, bool) {
	d, ok := <-q.ch
	if ok {
		q.took(d)
	}
	return d, ok
}

// took makes room for what is behind d, which was received from q.ch.
func (q *Queue) took(d Delivery) {
	q.bytes.Add(-int64(len(d.Msg.Data()) + d.HeaderBytes))
	select {
	case q.room <- struct{}{}:
	default: // there is a token
	}
}

// Close says that nothing more comes.
func (q *Queue) Close() { close(q.ch) }
