package results

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/topology"
)

// duplicateWindow tracks for how long a stream drops messages whose ids it has stored before.
type duplicateWindow struct{ last atomic.Pointer[sight] }

// sight is what the server reported about the stream at one moment.
type sight struct {
	window time.Duration
	before time.Duration // the window until then if it was shorter; otherwise window
	at     time.Time     // when the server was asked, by this process's clock
	server time.Time     // at most what the server's clock showed then; zero: unknown
}

// saw notes the state of the stream. The server was asked at that moment.
func (w *duplicateWindow) saw(info *jetstream.StreamInfo, asked time.Time) {
	now := &sight{window: info.Config.Duplicates, before: info.Config.Duplicates, at: asked, server: info.TimeStamp}
	if last := w.last.Load(); last != nil {
		// A longer window does not bring ids back that the stream has forgotten.
		now.before = min(now.window, last.holds(asked))
	}
	w.last.Store(now)
}

// holds returns how far back the stream knew every id at that moment.
func (s *sight) holds(now time.Time) time.Duration {
	return min(s.window, s.before+max(now.Sub(s.at), 0))
}

// publishFor is how long after a delivery was cleared its result may be published.
func (w *duplicateWindow) publishFor(now time.Time) time.Duration {
	last := w.last.Load()
	if last == nil {
		return topology.PublishFor(0) // there is no stream yet
	}
	return topology.PublishFor(last.holds(now))
}

// age is at most how long ago the server stored a message. ok is false if the server's clock is unknown.
func (w *duplicateWindow) age(stored, now time.Time) (age time.Duration, ok bool) {
	last := w.last.Load()
	if last == nil || last.server.IsZero() {
		return 0, false
	}
	return last.server.Sub(stored) + pause.Elapsed(last.at, now), true
}

// clear reports whether a delivery's result may be published now: for most after it was cleared (see publishFor). If byAge is set, a
// delivery that was not cleared is cleared by its age, since no result is older than its input.
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
