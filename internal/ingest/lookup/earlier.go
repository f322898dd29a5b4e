package lookup

import (
	"context"
	"time"

	"millrace/internal/ingest/commit"
)

// Earlier returns when the newest result with an id of an earlier version was stored, or the zero time if it finds none. It
// covers the results of the last period of length lately, and checks about samples of them. If there are no more results than
// samples, it checks all of them. Otherwise it detects a worker that stored more than a few samples' worth of results.
func (r *Results) Earlier(ctx context.Context, lately time.Duration, samples uint64) (time.Time, error) {
	name := r.s.Streams[0]
	info, err := r.info(ctx, name)
	if err != nil {
		return time.Time{}, r.explain(err)
	}
	if info == nil || info.State.Msgs == 0 {
		return time.Time{}, nil
	}
	since := info.TimeStamp
	if since.IsZero() {
		since = time.Now()
	}
	since = since.Add(-lately)
	if info.State.LastTime.Before(since) {
		return time.Time{}, nil
	}
	consumer, err := r.consumerSince(ctx, name, since)
	if err != nil {
		return time.Time{}, r.explain(err)
	}
	n := min(consumer.CachedInfo().NumPending, info.State.LastSeq)
	step := max(n/samples, 1)
	for back := uint64(0); back < n; back += step { // from the newest backwards
		m, err := r.next(ctx, info.State.LastSeq-back, ">")
		if err != nil {
			return time.Time{}, r.explain(err)
		}
		if m == nil {
			continue
		}
		if _, old, ok := parse(commit.ID(m.Header), r.s.Input); ok && old {
			return m.Time, nil
		}
	}
	return time.Time{}, nil
}
