package trim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// Reason is a reason why the worker removes nothing from a stream.
type Reason string

// The reasons.
const (
	None         Reason = ""             // processed inputs may be removed
	NotTrimmed   Reason = "not_trimmed"  // the policy doesn't allow it, or the stream has no mark
	Retention    Reason = "retention"    // the stream has work-queue or interest retention, so the server removes inputs
	Mirrored     Reason = "mirrored"     // another stream mirrors this one or sources from it
	NoConsumers  Reason = "no_consumers" // the stream has no consumers
	Missing      Reason = "missing"      // a registered consumer doesn't exist
	Unknown      Reason = "unknown"      // the state of a consumer is not available now
	Unregistered Reason = "unregistered" // the consumers of this worker are not registered
	Forbidden    Reason = "forbidden"    // the worker's user lacks a permission
)

// Reasons lists all reasons except None.
var Reasons = [...]Reason{NotTrimmed, Retention, Mirrored, NoConsumers, Missing, Unknown, Unregistered, Forbidden}

// State describes the inputs that a stream's consumers still need.
type State struct {
	Info   *jetstream.StreamInfo // read before the consumers
	Held   Reason                // reason why nothing may be removed; None if inputs may be removed
	Detail string                // names of the consumers or streams that Held concerns

	Floor  uint64 // sequence up to which every message is processed, if Held is None
	Holder string // consumer that needs the next message; empty if no consumer needs any message of Info
}

// Behind returns the number of sequences between the floor and the end of the stream.
func (s State) Behind() uint64 {
	if s.Info == nil || s.Held != None {
		return 0
	}
	return s.Info.State.LastSeq - min(s.Floor, s.Info.State.LastSeq)
}

// Look determines the inputs that the consumers of a stream still need. info is the state of the stream.
func Look(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, policy Policy) (State, error) {
	r := reader{js: js, stream: info.Config.Name, policy: policy}
	return r.read(ctx, info)
}

// reader determines the State of one stream.
type reader struct {
	js     jetstream.JetStream
	stream string
	policy Policy

	copies   []string  // names of the streams in the account that copy this one
	listedAt time.Time // time when copies was read
}

// copiesAge is the maximum age of the list of copies.
const copiesAge = 10 * time.Second

// read determines the State from info and the stream's consumers. info must be older than the answer about the
// consumers, so that messages that were stored in between aren't removed.
func (r *reader) read(ctx context.Context, info *jetstream.StreamInfo) (State, error) {
	s := State{Info: info}
	c := info.Config
	switch {
	case !r.policy.trims(c):
		return s.held(NotTrimmed, ""), nil
	case c.Retention != jetstream.LimitsPolicy:
		return s.held(Retention, c.Retention.String()), nil
	}
	consumers, unknown, err := jsapi.Consumers(ctx, r.js, r.stream)
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
	if err := r.findCopies(ctx); err != nil {
		return s, err
	}
	if len(r.copies) > 0 {
		return s.held(Mirrored, strings.Join(r.copies, ", ")), nil
	}
	return r.floor(ctx, s, consumers)
}

// Explain returns a human-readable reason why nothing may be removed, and a remedy.
func (s State) Explain() string {
	name := s.Info.Config.Name
	switch s.Held {
	case NotTrimmed:
		return "it has no mark (metadata " + MarkKey + "=" + name + "), so every input stays"
	case Retention:
		return "it has retention " + strings.ToLower(s.Detail) + ": the server itself removes inputs, and may remove some that nobody has processed"
	case Mirrored:
		return "it is mirrored or sourced by " + s.Detail + ", whose position no worker can see: set MILLRACE_STREAM_TRIM=true if these copies may miss processed inputs"
	case NoConsumers:
		return "it has no consumers"
	case Missing:
		return "registered consumers don't exist: " + s.Detail + ". Create them (MILLRACE_PROVISION=true), or, if their deployment is gone, remove them from the " +
			"metadata " + ConsumersKey
	case Unknown:
		return "the server can't tell the state of consumers now: " + s.Detail
	case Unregistered:
		return "this worker's consumers aren't registered in its metadata: " + cmp.Or(s.Detail, "another worker has just changed the stream")
	}
	return ""
}

func (s State) held(why Reason, detail string) State {
	s.Held, s.Detail = why, detail
	return s
}

// missingOf returns the given names without the names of existing consumers.
func missingOf(names []string, consumers []*jetstream.ConsumerInfo) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.Name == name })
	})
}

// findCopies finds the streams in the account that mirror this stream or source from it. Their positions aren't in the
// list of consumers. With the policy Always, the user accepts that copies may miss inputs.
func (r *reader) findCopies(ctx context.Context) error {
	if r.policy == Always || time.Since(r.listedAt) < copiesAge {
		return nil
	}
	var names []string
	list := r.js.ListStreams(ctx)
	for info := range list.Info() {
		c := info.Config
		from := func(s *jetstream.StreamSource) bool { return s.Name == r.stream }
		if c.Mirror != nil && from(c.Mirror) || slices.ContainsFunc(c.Sources, from) {
			names = append(names, c.Name)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list streams, to find those that copy %q: %w", r.stream, err)
	}
	r.copies, r.listedAt = names, time.Now()
	return nil
}

// floor sets the floor of s to the lowest floor of the consumers.
func (r *reader) floor(ctx context.Context, s State, consumers []*jetstream.ConsumerInfo) (State, error) {
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
		floor, err := r.idleFloor(ctx, c, s.Floor)
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
func (r *reader) idleFloor(ctx context.Context, c *jetstream.ConsumerInfo, limit uint64) (uint64, error) {
	for _, filter := range filters(c.Config) {
		m, err := jsapi.Next(ctx, r.js, r.stream, c.AckFloor.Stream+1, filter)
		if err != nil {
			return 0, fmt.Errorf("look for messages of consumer %q: %w", c.Name, err)
		}
		if m != nil {
			limit = min(limit, m.Sequence-1)
		}
	}
	return limit, nil
}

func filters(c jetstream.ConsumerConfig) []string {
	switch {
	case len(c.FilterSubjects) > 0:
		return c.FilterSubjects
	case c.FilterSubject != "":
		return []string{c.FilterSubject}
	}
	return []string{">"}
}
