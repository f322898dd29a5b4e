package lookup

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
)

// bound returns a time before which no result of the inputs can have been stored. oldest, the time when the stream
// stored the first of the inputs, is such a time. With a long backlog, oldest is far back, so bound searches for a
// later time.
//
// The server first delivers inputs in the order of their sequences. A result without the header Options.Deliveries was
// stored within one duplicate window after the first delivery of its input. If that input precedes all given inputs,
// their first deliveries came later. They were therefore at the earliest one window before the result was stored.
func (a *api) bound(ctx context.Context, inputs []Wanted, oldest time.Time) time.Time {
	lowest := inputs[0]
	for _, in := range inputs {
		if in.Sequence < lowest.Sequence {
			lowest = in
		}
	}
	info, err := a.info(ctx, a.o.Streams[0])
	if err != nil || info == nil || info.State.Msgs == 0 {
		return oldest
	}
	filter := ">"
	if a.o.BySubject {
		filter = lowest.Subject
	}
	for low, high := info.State.FirstSeq, info.State.LastSeq+1; low < high; {
		middle := low + (high-low)/2
		m, err := a.next(ctx, middle, filter)
		switch {
		case err != nil:
			return oldest
		case m == nil || m.Sequence >= high:
			high = middle
		case before(m, lowest.Input, a.o):
			if at := m.Time.Add(-info.Config.Duplicates - slack); at.After(oldest) {
				oldest = at
			}
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return oldest
}

// before reports whether a message is the result of an earlier input than in, and was stored soon after the first
// delivery of its input.
func before(m *jetstream.RawStreamMsg, in Input, o Options) bool {
	of, ok := parse(commit.ID(m.Header), o.Input)
	return ok && of.Sequence < in.Sequence && m.Header.Get(o.Deliveries) == ""
}
