package results

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/topology"
)

// clearance decides whether a result or a dead letter may be published now (adr/0032). The stream drops a duplicate only within
// its duplicate window. So a message may be published without a lookup only if no copy of it was stored before some time within
// that window. Otherwise it is looked up first.
type clearance struct {
	s       Settings
	results duplicateWindow // window of the result stream
	dead    duplicateWindow // window of the dead-letter stream, if that is another stream
	apart   bool            // whether dead letters have their own stream
	letters string          // its name then
	lookup  *lookup.Results
}

// newClearance determines which streams store results and dead letters.
func newClearance(ctx context.Context, js jetstream.JetStream, s Settings) *clearance {
	c := &clearance{s: s}
	streams := []string{s.ResultStream}
	if name, err := topology.DeadLetterStream(ctx, js, s.Topology); err == nil && name != "" && name != s.ResultStream {
		asked := time.Now()
		if stream, err := js.Stream(ctx, name); err == nil {
			streams, c.apart, c.letters = append(streams, name), true, name
			c.dead.saw(stream.CachedInfo(), asked)
		}
	}
	c.lookup = lookup.New(js, lookup.Settings{
		Input: s.Stream, Streams: streams, BySubject: s.Exclusive, Deliveries: HeaderDeliveries, Part: HeaderPart, Log: s.Log,
	})
	return c
}

// mayPublishUnchecked reports whether a result of a delivery may be published now. The result may be published for most after the delivery was
// cleared.
func (c *clearance) mayPublishUnchecked(d *inflight.Delivery, now time.Time, most time.Duration) bool {
	return c.results.mayPublishUnchecked(d, now, most)
}

// until returns the time from which the first of these deliveries may no longer be published. All of them must be clear.
func (c *clearance) until(items []inflight.Delivery, left []int, now time.Time) time.Time {
	oldest := now
	for _, i := range left {
		if at := items[i].Cleared; at.Before(oldest) {
			oldest = at
		}
	}
	return oldest.Add(c.results.publishFor(now))
}

// publishUntil returns the time from which nothing of a delivery, which must be clear, may be published any more.
func (c *clearance) publishUntil(d *inflight.Delivery, now time.Time) time.Time {
	return d.Cleared.Add(c.results.publishFor(now))
}

// partials is the set of the ids of messages that are known to be stored and do not finish their input: parts of results, and dead
// letters of records. The zero value is empty.
type partials map[string]bool

func (p *partials) add(ids []string) {
	if *p == nil && len(ids) > 0 {
		*p = partials{}
	}
	for _, id := range ids {
		(*p)[id] = true
	}
}

// find looks up stale deliveries and appends those that have a result or a dead letter to known. The others are clear from now
// on, and what is stored of them is added to partial.
func (c *clearance) find(ctx context.Context, items []inflight.Delivery, stale, known []int, partial *partials) ([]int, error) {
	wanted := make([]lookup.Wanted, len(stale))
	for n, i := range stale {
		d := &items[i]
		wanted[n] = lookup.Wanted{
			Input: lookup.Input{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}, Subject: topology.MapSubject(c.s.ResultPrefix, d.Subject),
		}
	}
	found, began, err := c.lookup.Find(ctx, wanted)
	if errors.Is(err, lookup.ErrImpossible) {
		c.s.Log.Warn("results are published without looking whether they are stored already: they may be stored a second time",
			"results", len(stale), "stream", c.s.ResultStream, "error", err)
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
		partial.add(found[n].Partial)
	}
	return known, nil
}

// clearDeadLetters returns those of the deliveries that already have a result or a dead letter. Dead letters of the others may be published
// until the returned time. It adds to partial like find.
func (c *clearance) clearDeadLetters(ctx context.Context, all []*inflight.Delivery, partial *partials) (finished map[*inflight.Delivery]bool, until time.Time, err error) {
	w := &c.results
	if c.apart {
		w = &c.dead
	}
	now := time.Now()
	most := w.publishFor(now)
	var stale []*inflight.Delivery
	var items []inflight.Delivery
	for _, d := range all {
		if !w.mayPublishUnchecked(d, now, most) {
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

// rangeOf returns the integers below n.
func rangeOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
