package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/store"
)

const (
	askTimeout = 5 * time.Second

	// unused is the time without a request after which the server deletes the consumer of a scan.
	unused = 30 * time.Second
)

// info returns a stream's state, or nil if there is no such stream. It returns an error unless the stream has retention by limits.
// Other streams remove acknowledged messages, so a lookup isn't possible there.
func (r *Results) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := r.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", name, err)
	}
	if kept := s.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("%w: stream %q removes messages that consumers have taken (retention %s)", ErrImpossible, name, kept)
	}
	return s.CachedInfo(), nil
}

// next returns the result stream's first message at or after sequence from with a subject that matches filter, or nil.
func (r *Results) next(ctx context.Context, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return jsapi.Next(ctx, r.js, r.o.Streams[0], from, filter)
}

// consumer creates a consumer that delivers the headers of the messages from a sequence on, or with sequence 0 of the messages
// stored since r.since. The server deletes the consumer after the duration unused without a request.
func (r *Results) consumer(ctx context.Context, stream string, sequence uint64) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	config := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: sequence,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: unused,
	}
	if sequence == 0 {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.since
	}
	consumer, err := r.js.CreateConsumer(ctx, stream, config)
	if err != nil {
		return nil, fmt.Errorf("create a consumer to read the headers of stream %q: %w", stream, err)
	}
	return consumer, nil
}

// explain adds ErrImpossible to permanent errors. If a limit on consumers is reached, it adds advice.
func (r *Results) explain(err error) error {
	if last := r.js.Conn().LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		for _, name := range r.o.Streams {
			if strings.Contains(last.Error(), "."+name+".") || strings.Contains(last.Error(), "."+name+`"`) {
				return fmt.Errorf("%w: %w (docs/security.md lists what the worker's user needs)", ErrImpossible, last)
			}
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return err
	}
	if api.ErrorCode == jetstream.JSErrCodeMaximumConsumersLimit {
		return fmt.Errorf("%w: raise the limit on consumers (max_consumers of the stream or the account, or the server's default_max_consumers), or remove consumers that nobody uses", err)
	}
	if api.Code == 400 {
		return fmt.Errorf("%w: %w", ErrImpossible, err)
	}
	return err
}

// bound returns a time before which no result of the inputs can have been stored. oldest, the time when the stream
// stored the first of the inputs, is such a time. With a long backlog, oldest is far back, so bound searches for a
// later time.
//
// The server first delivers inputs in the order of their sequences. A result without the header Options.Deliveries was
// stored within one duplicate window after the first delivery of its input. If that input precedes all given inputs,
// their first deliveries came later. They were therefore at the earliest one window before the result was stored.
func (r *Results) bound(ctx context.Context, inputs []Wanted, oldest time.Time) time.Time {
	lowest := slices.MinFunc(inputs, func(a, b Wanted) int { return cmp.Compare(a.Sequence, b.Sequence) })
	info, err := r.info(ctx, r.o.Streams[0])
	if err != nil || info == nil || info.State.Msgs == 0 {
		return oldest
	}
	filter := ">"
	if r.o.BySubject {
		filter = lowest.Subject
	}
	for low, high := info.State.FirstSeq, info.State.LastSeq+1; low < high; {
		middle := low + (high-low)/2
		m, err := r.next(ctx, middle, filter)
		switch {
		case err != nil:
			return oldest
		case m == nil || m.Sequence >= high:
			high = middle
		case before(m, lowest.Input, r.o):
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
	of, ok := parse(store.IDOf(m.Header), o.Input)
	return ok && of.Sequence < in.Sequence && m.Header.Get(o.Deliveries) == ""
}
