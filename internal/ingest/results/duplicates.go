package results

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/topology"
)

// duplicateWindow is what is known of how long a stream drops what it has stored before.
type duplicateWindow struct{ last atomic.Pointer[sight] }

// sight is the result stream's word on its window.
type sight struct {
	window time.Duration
	before time.Duration // what it was until then, as far as it was shorter; otherwise window
	at     time.Time     // when it was asked, by this process
	server time.Time     // what the server's clock showed at most then; zero: not known
}

// saw enters the result stream as it was when it was asked at that moment.
func (w *duplicateWindow) saw(info *jetstream.StreamInfo, asked time.Time) {
	now := &sight{window: info.Config.Duplicates, before: info.Config.Duplicates, at: asked, server: info.TimeStamp}
	if last := w.last.Load(); last != nil {
		// Ids that the stream has forgotten do not come back with a longer window.
		now.before = min(now.window, last.holds(asked))
	}
	w.last.Store(now)
}

// holds is for how long the stream had every id at that moment.
func (s *sight) holds(now time.Time) time.Duration {
	return min(s.window, s.before+max(now.Sub(s.at), 0))
}

// publishFor is for how long after a moment before which no result was stored one may be published.
func (w *duplicateWindow) publishFor(now time.Time) time.Duration {
	last := w.last.Load()
	if last == nil {
		return topology.PublishFor(0) // there is no stream yet, and so no result
	}
	return topology.PublishFor(last.holds(now))
}

// age is how long ago the server stored something, at most; ok is false where its clock is not known.
func (w *duplicateWindow) age(stored, now time.Time) (age time.Duration, ok bool) {
	last := w.last.Load()
	if last == nil || last.server.IsZero() {
		return 0, false
	}
	return last.server.Sub(stored) + pause.Elapsed(last.at, now), true
}

// clear says whether a delivery's result may be published at that moment, for most after it was cleared (publishFor). One of which too little is known is cleared by its age, if that
// may count: no result is older than its input.
func (w *duplicateWindow) clear(d *inflight.Delivery, now time.Time, most time.Duration, byAge bool) bool {
	if !d.Cleared.IsZero() && pause.Elapsed(d.Cleared, now) < most {
		return true
	}
	age, ok := w.age(d.Stored, now)
	if !ok || !byAge || age >= most {
		return false
	}
	d.Cleared = now.Add(-age)
	return true
}
