package results

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/topology"
)

// duplicateWindow tracks the duplicate window of a stream.
type duplicateWindow struct{ last atomic.Pointer[sight] }

// sight is a stream's state in one answer of the server.
type sight struct {
	window time.Duration
	before time.Duration // length of the period before at for which the stream has every id; at most window
	at     time.Time     // time of the query, by the process's clock
	server time.Time     // the server's clock in its answer; zero if unknown
}

// saw records info, which was queried at asked.
func (w *duplicateWindow) saw(info *jetstream.StreamInfo, asked time.Time) {
	now := &sight{window: info.Config.Duplicates, before: info.Config.Duplicates, at: asked, server: info.TimeStamp}
	if last := w.last.Load(); last != nil {
		// A longer window doesn't restore forgotten ids.
		now.before = min(now.window, last.holds(asked))
	}
	w.last.Store(now)
}

// holds returns the length of the period before now for which the stream has every id.
func (s *sight) holds(now time.Time) time.Duration {
	return min(s.window, s.before+max(now.Sub(s.at), 0))
}

// publishFor returns the maximum time from a delivery's clearance to the publish of its result.
func (w *duplicateWindow) publishFor(now time.Time) time.Duration {
	last := w.last.Load()
	if last == nil {
		return topology.PublishFor(0) // there is no stream yet
	}
	return topology.PublishFor(last.holds(now))
}

// age returns an upper bound of the time since stored, by the server's clock. ok is false if the server's clock is unknown.
func (w *duplicateWindow) age(stored, now time.Time) (age time.Duration, ok bool) {
	last := w.last.Load()
	if last == nil || last.server.IsZero() {
		return 0, false
	}
	return last.server.Sub(stored) + pause.Elapsed(last.at, now), true
}

// mayPublishUnchecked reports whether the result of d may be published now without a lookup. limit is the maximum time since d's
// clearance (see publishFor). If d's input is younger than limit, mayPublishUnchecked clears d, because no result is older than its
// input.
func (w *duplicateWindow) mayPublishUnchecked(d *inflight.Delivery, now time.Time, limit time.Duration) bool {
	if !d.Cleared.IsZero() && pause.Elapsed(d.Cleared, now) < limit {
		return true
	}
	age, ok := w.age(d.Stored, now)
	if !ok || age >= limit {
		return false
	}
	d.Cleared = now.Add(-age)
	return true
}
