package ingest

import (
	"context"
	"sync/atomic"

	"millrace/internal/ingest/pull"
)

// queue is where deliveries wait between the pull and the batchers, so that neither wakes the other for every single one. It is
// bounded by number, and by bytes once it holds more than one: 256 payloads of the largest size would be most of what a
// worker may take. One goroutine puts, any number may take.
type queue struct {
	ch    chan delivery
	bytes atomic.Int64  // of those in it
	room  chan struct{} // a token where something was taken since the putter last looked
}

const (
	// queueMost is how many deliveries may wait.
	queueMost = 256

	// queueBytes is how many bytes they may have together, headers included, if one alone has not more: what one request of
	// the pull brings.
	queueBytes = pull.RequestBytes
)

// newQueue makes a queue for most deliveries; 0: each is handed over.
func newQueue(most int) *queue {
	return &queue{ch: make(chan delivery, most), room: make(chan struct{}, 1)}
}

// put waits for room and hands d over. It reports false when ctx ended before.
func (q *queue) put(ctx context.Context, d delivery) bool {
	n := int64(len(d.msg.Data()) + d.headers)
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

// took makes room for what is behind d, which was received from q.ch.
func (q *queue) took(d delivery) {
	q.bytes.Add(-int64(len(d.msg.Data()) + d.headers))
	select {
	case q.room <- struct{}{}:
	default: // there is a token
	}
}

// close says that nothing more comes.
func (q *queue) close() { close(q.ch) }
