package results

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/topology"
)

// duplicateWindow tracks how long a stream recognizes the ids of stored messages and drops duplicates.
type duplicateWindow struct{ last atomic.Pointer[sight] }

// sight is the stream state that the server reported at one time.
type sight struct {
	window time.Duration
	before time.Duration // an earlier, shorter window that limits older ids; otherwise the same as window
	at     time.Time     // time of the query, by this process's clock
	server time.Time     // lower bound of the server's clock at that time; zero: unknown
}

// saw records the state of the stream. asked is the time of the query.
func (w *duplicateWindow) saw(info *jetstream.StreamInfo, asked time.Time) {
	now := &sight{window: info.Config.Duplicates, before: info.Config.Duplicates, at: asked, server: info.TimeStamp}
	if last := w.last.Load(); last != nil {
		// A longer window does not restore ids that the stream has forgotten.
		now.before = min(now.window, last.holds(asked))
	}
	w.last.Store(now)
}

// holds returns how far back the stream knew every id at that time.
func (s *sight) holds(now time.Time) time.Duration {
	return min(s.window, s.before+max(now.Sub(s.at), 0))
}

// publishFor returns how long after a delivery was cleared its result may be published.
func (w *duplicateWindow) publishFor(now time.Time) time.Duration {
	last := w.last.Load()
	if last == nil {
		return topology.PublishFor(0) // there is no stream yet
	}
	return topology.PublishFor(last.holds(now))
}

// age returns an upper bound of the time since the server stored a message. ok is false if the server's clock is unknown.
func (w *duplicateWindow) age(stored, now time.Time) (age time.Duration, ok bool) {
	last := w.last.Load()
	if last == nil || last.server.IsZero() {
		return 0, false
	}
	return last.server.Sub(stored) + pause.Elapsed(last.at, now), true
}

// mayPublishUnchecked reports whether a delivery's result may be published now: for most after it was cleared (see publishFor). A delivery that
// was not cleared may be cleared by its age, because no result is older than its input.
func (w *duplicateWindow) mayPublishUnchecked(d *inflight.Delivery, now time.Time, most time.Duration) bool {
	if !d.Cleared.IsZero() && pause.Elapsed(d.Cleared, now) < most {
		return true
	}
	age, ok := w.age(d.Stored, now)
	if !ok || age >= most {
		return false
	}
	d.Cleared = now.Add(-age)
	return true
}
