package results

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// clearance decides whether a result or a dead letter may be published now (adr/0032). The stream drops a duplicate only within
// its duplicate window. The worker publishes a message without a lookup only if no stored copy can be older than that window.
type clearance struct {
	o       Options
	results duplicateWindow // window of the result stream
	dead    duplicateWindow // window of the dead-letter stream, if apart is set
	apart   bool            // whether dead letters have their own stream
	letters string          // name of the dead-letter stream, if apart is set
	server  *Server
}

// open queries the stream of dead letters, and returns the lookup in the streams of results and dead letters.
func (c *clearance) open(ctx context.Context, js jetstream.JetStream) *lookup.Results {
	o := c.o
	streams := []string{o.ResultStream}
	if name, err := topology.DeadLetterStream(ctx, js, o.Topology); err == nil && name != "" && name != o.ResultStream {
		asked := time.Now()
		if stream, err := js.Stream(ctx, name); err == nil {
			streams = append(streams, name)
			c.sawLetters(stream.CachedInfo(), asked)
		}
	}
	return lookup.New(js, lookup.Options{
		Input: o.Stream, Streams: streams, BySubject: o.Exclusive, Deliveries: HeaderDeliveries, Part: HeaderPart, Reason: HeaderReason, Log: o.Log,
	})
}

// sawLetters records info, the state of the dead letters' own stream, which was queried at asked.
func (c *clearance) sawLetters(info *jetstream.StreamInfo, asked time.Time) {
	c.apart, c.letters = true, info.Config.Name
	c.dead.saw(info, asked)
}

// until returns the deadline for publishing the results of the deliveries in items with the indices in left. These deliveries must
// be cleared.
func (c *clearance) until(items []inflight.Delivery, left []int, now time.Time) time.Time {
	oldest := now
	for _, i := range left {
		if at := items[i].Cleared; at.Before(oldest) {
			oldest = at
		}
	}
	return oldest.Add(c.results.publishFor(now))
}

// partials are stored messages that don't finish their input. Each is a part of a result or a record's dead letter.
// The key is the id of the message. The value is the reason of a dead letter, and empty for a part of a result. The
// zero value has no messages.
type partials map[string]string

func (p *partials) add(all ...lookup.Partial) {
	if *p == nil && len(all) > 0 {
		*p = partials{}
	}
	for _, each := range all {
		(*p)[each.ID] = each.Reason
	}
}

func (p partials) has(id string) bool {
	_, ok := p[id]
	return ok
}

// find looks up the deliveries with the indices in stale, and appends the indices of finished deliveries to known. A finished
// delivery has a stored result or dead letter. find marks the other deliveries as cleared, and adds the ids of their stored
// messages to partial. If lookups are impossible, find logs a warning and treats no delivery as finished.
func (c *clearance) find(ctx context.Context, items []inflight.Delivery, stale, known []int, partial *partials) ([]int, error) {
	wanted := make([]lookup.Wanted, len(stale))
	for n, i := range stale {
		d := &items[i]
		wanted[n] = lookup.Wanted{
			Input: lookup.Input{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}, Subject: store.MapSubject(c.o.ResultPrefix, d.Subject),
		}
	}
	found, began, err := c.server.Find(ctx, wanted)
	if errors.Is(err, lookup.ErrImpossible) {
		c.o.Log.Warn("results are published without looking whether they are stored already: they may be stored a second time",
			"results", len(stale), "stream", c.o.ResultStream, "error", err)
		found, err = make([]lookup.Found, len(stale)), nil
	}
	if err != nil {
		return known, err
	}
	for n, i := range stale {
		d := &items[i]
		if found[n].Done {
			known = append(known, i)
			continue
		}
		d.First, d.Cleared = false, began
		partial.add(found[n].Partial...)
	}
	return known, nil
}

// clearDeadLetters returns the finished deliveries of all, which already have a result or a dead letter. until is the deadline for
// publishing dead letters of the other deliveries. Like find, clearDeadLetters adds ids to partial.
func (c *clearance) clearDeadLetters(ctx context.Context, all []*inflight.Delivery, partial *partials) (finished map[*inflight.Delivery]bool, until time.Time, err error) {
	w := &c.results
	if c.apart {
		w = &c.dead
	}
	now := time.Now()
	limit := w.publishFor(now)
	var stale []*inflight.Delivery
	var items []inflight.Delivery
	for _, d := range all {
		if !w.mayPublishUnchecked(d, now, limit) {
			stale, items = append(stale, d), append(items, *d)
		}
	}
	if len(stale) > 0 {
		known, err := c.find(ctx, items, rangeOf(len(items)), nil, partial)
		if err != nil {
			return nil, now, err
		}
		finished = make(map[*inflight.Delivery]bool, len(known))
		for n, d := range stale {
			d.First, d.Cleared = items[n].First, items[n].Cleared
		}
		for _, n := range known {
			finished[stale[n]] = true
		}
	}
	oldest := now
	for _, d := range all {
		if !finished[d] && d.Cleared.Before(oldest) {
			oldest = d.Cleared
		}
	}
	return finished, oldest.Add(w.publishFor(now)), nil
}

func rangeOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

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
		return store.PublishFor(0) // there is no stream yet
	}
	return store.PublishFor(last.holds(now))
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
