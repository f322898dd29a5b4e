package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
