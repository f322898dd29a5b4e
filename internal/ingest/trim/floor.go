package trim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// copiesAge is the maximum age of the list of copies.
const copiesAge = 10 * time.Second

// Look determines the inputs that the consumers of the stream still need. info is the state of the stream. It must be older
// than the answer about the consumers, so that messages that were stored in between aren't removed.
func (t *Trimmer) Look(ctx context.Context, info *jetstream.StreamInfo) (State, error) {
	s := State{Info: info}
	c := info.Config
	switch {
	case !t.Policy.trims(c):
		return s.held(NotTrimmed, ""), nil
	case c.Retention != jetstream.LimitsPolicy:
		return s.held(Retention, c.Retention.String()), nil
	}
	consumers, unknown, err := jsapi.Consumers(ctx, t.JS, t.Stream)
	if err != nil {
		return s, err
	}
	switch missing := missingOf(Registered(c), consumers); {
	case len(unknown) > 0:
		return s.held(Unknown, strings.Join(unknown, ", ")), nil
	case len(missing) > 0:
		return s.held(Missing, strings.Join(missing, ", ")), nil
	case len(consumers) == 0:
		return s.held(NoConsumers, ""), nil
	}
	if err := t.findCopies(ctx); err != nil {
		return s, err
	}
	if len(t.copies) > 0 {
		return s.held(Mirrored, strings.Join(t.copies, ", ")), nil
	}
	return t.floor(ctx, s, consumers)
}

// missingOf returns the given names without the names of existing consumers.
func missingOf(names []string, consumers []*jetstream.ConsumerInfo) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.Name == name })
	})
}

// findCopies finds the streams in the account that mirror this stream or source from it. Their positions aren't in the
// list of consumers. With the policy Always, the user accepts that copies may miss inputs.
func (t *Trimmer) findCopies(ctx context.Context) error {
	if t.Policy == Always || time.Since(t.listedAt) < copiesAge {
		return nil
	}
	var names []string
	list := t.JS.ListStreams(ctx)
	for info := range list.Info() {
		c := info.Config
		from := func(s *jetstream.StreamSource) bool { return s.Name == t.Stream }
		if c.Mirror != nil && from(c.Mirror) || slices.ContainsFunc(c.Sources, from) {
			names = append(names, c.Name)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list streams, to find those that copy %q: %w", t.Stream, err)
	}
	t.copies, t.listedAt = names, time.Now()
	return nil
}

// floor sets the floor of s to the lowest floor of the consumers.
func (t *Trimmer) floor(ctx context.Context, s State, consumers []*jetstream.ConsumerInfo) (State, error) {
	s.Floor = s.Info.State.LastSeq
	idle := consumers[:0:0]
	for _, c := range consumers {
		switch {
		case c.AckFloor.Stream >= s.Floor:
		case c.NumPending == 0 && c.NumAckPending == 0:
			idle = append(idle, c)
		default:
			s.Floor, s.Holder = c.AckFloor.Stream, c.Name
		}
	}
	for _, c := range idle {
		floor, err := t.idleFloor(ctx, c, s.Floor)
		if err != nil {
			return s, err
		}
		if floor < s.Floor {
			s.Floor, s.Holder = floor, c.Name
		}
	}
	return s, nil
}

// idleFloor returns the floor of a consumer that has nothing pending, or limit if the consumer needs no message up to
// limit. The consumer's pending count isn't proof, because the server updates it after the stream. In a cluster, that
// server's copy of the stream may also be behind. idleFloor therefore requests the consumer's next message from the stream's leader.
func (t *Trimmer) idleFloor(ctx context.Context, c *jetstream.ConsumerInfo, limit uint64) (uint64, error) {
	for _, filter := range jsapi.Filters(c.Config) {
		m, err := jsapi.Next(ctx, t.JS, t.Stream, c.AckFloor.Stream+1, filter)
		if err != nil {
			return 0, fmt.Errorf("look for messages of consumer %q: %w", c.Name, err)
		}
		if m != nil {
			limit = min(limit, m.Sequence-1)
		}
	}
	return limit, nil
}
