package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/jsapi"
)

const (
	askTimeout = 5 * time.Second

	// unused is the time without a request after which the server deletes the consumer of a scan.
	unused = 30 * time.Second
)

// api queries the server about the streams that store results. It keeps no state.
type api struct {
	nc *nats.Conn
	js jetstream.JetStream
	o  Options
}

// info returns a stream's state, or nil if there is no such stream.
func (a *api) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := a.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// keeps returns an error unless the stream has retention by limits. Other streams remove acknowledged messages, so a
// lookup isn't possible there.
func keeps(info *jetstream.StreamInfo) error {
	if kept := info.Config.Retention; kept != jetstream.LimitsPolicy {
		return fmt.Errorf("%w: stream %q removes messages that consumers have taken (retention %s)", ErrImpossible, info.Config.Name, kept)
	}
	return nil
}

// next returns the result stream's first message at or after sequence from with a subject that matches filter, or nil.
func (a *api) next(ctx context.Context, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return jsapi.Next(ctx, a.js, a.o.Streams[0], from, filter)
}

// consumerSince creates a consumer of the messages that were stored at or after a time.
func (a *api) consumerSince(ctx context.Context, stream string, since time.Time) (jetstream.Consumer, error) {
	return a.create(ctx, stream, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since})
}

// consumerFrom creates a consumer of the messages from the given sequence on.
func (a *api) consumerFrom(ctx context.Context, stream string, sequence uint64) (jetstream.Consumer, error) {
	return a.create(ctx, stream, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: sequence})
}

// create creates a consumer that delivers only headers. The server deletes it after the duration unused without a
// request.
func (a *api) create(ctx context.Context, stream string, from jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	from.AckPolicy, from.HeadersOnly, from.MemoryStorage, from.Replicas, from.InactiveThreshold = jetstream.AckNonePolicy, true, true, 1, unused
	consumer, err := a.js.CreateConsumer(ctx, stream, from)
	if err != nil {
		return nil, fmt.Errorf("create a consumer to read the headers of stream %q: %w", stream, err)
	}
	return consumer, nil
}

// explain adds ErrImpossible to permanent errors. If a limit on consumers is reached, it adds advice.
func (a *api) explain(err error) error {
	if last := a.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		for _, name := range a.o.Streams {
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

// Options defines where to search for results.
type Options struct {
	Input   string   // name of the input stream
	Streams []string // names of the streams that store results and dead letters

	// BySubject means that only inputs of the same partition are delivered in order. All inputs of a subject are in one
	// partition. Each call of Find must then pass inputs of a single partition.
	BySubject bool

	// Deliveries is the header on each result that wasn't stored soon after the first delivery of its input.
	Deliveries string

	// Part is the header with the value i/n on each part of a result in n parts. The last part is stored last.
	Part string

	Log *slog.Logger
}

// ErrImpossible means that results can't be read and that a retry won't help.
var ErrImpossible = errors.New("results cannot be looked up")

// slack extends the scanned period, because the clocks of servers differ and results may have been in transit.
const slack = 30 * time.Second
