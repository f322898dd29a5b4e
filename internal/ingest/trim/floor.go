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

// Reason is why nothing is removed from a stream.
type Reason string

// The reasons.
const (
	None         Reason = ""             // processed inputs may be removed
	NotTrimmed   Reason = "not_trimmed"  // the stream has no mark, or the settings say so
	Retention    Reason = "retention"    // the server removes inputs itself: the stream is a work queue, or has interest retention
	Mirrored     Reason = "mirrored"     // another stream mirrors this one or sources from it
	NoConsumers  Reason = "no_consumers" // there is nobody to process inputs
	Missing      Reason = "missing"      // a registered consumer doesn't exist
	Unknown      Reason = "unknown"      // the server can't tell the state of a consumer now
	Unregistered Reason = "unregistered" // the consumers of this worker are not registered
	Forbidden    Reason = "forbidden"    // the worker's user lacks a permission
)

// Reasons lists the reasons.
var Reasons = [...]Reason{NotTrimmed, Retention, Mirrored, NoConsumers, Missing, Unknown, Unregistered, Forbidden}

// State is what a stream's consumers still need.
type State struct {
	Info   *jetstream.StreamInfo // read before the consumers
	Held   Reason                // why nothing may be removed
	Detail string                // what Held is about, for a person: names of consumers or streams

	Floor  uint64 // unless Held: every message up to this sequence is processed
	Holder string // the consumer that needs the next one; empty if no consumer needs any message of Info
}

// Behind returns the number of sequences between the floor and the end of the stream.
func (s State) Behind() uint64 {
	if s.Info == nil || s.Held != None {
		return 0
	}
	return s.Info.State.LastSeq - min(s.Floor, s.Info.State.LastSeq)
}

// Look returns what the consumers of a stream need. info is the state of the stream.
func Look(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, policy Policy) (State, error) {
	r := reader{js: js, stream: info.Config.Name, policy: policy}
	return r.read(ctx, info)
}

// reader reads what the consumers of one stream need.
type reader struct {
	js     jetstream.JetStream
	stream string
	policy Policy

	copies   []string  // names of streams of the account that copy this one
	listedAt time.Time // when copies was read
}

// copiesAge is how old the list of copies may be.
const copiesAge = 10 * time.Second

// read reads the state of the stream and of its consumers. It reads the stream first: what is stored after that isn't removed.
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

// Explain says for a person why nothing may be removed, and what to do about it.
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

// missingOf returns the names to which no consumer belongs.
func missingOf(names []string, consumers []*jetstream.ConsumerInfo) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.Name == name })
	})
}

// findCopies finds the streams of the account that mirror this one or source from it. Their consumers are in no list. With the policy Always,
// whoever chose it knows of them.
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

// floor sets the floor of s to the least of the consumers' floors.
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

// idleFloor returns the floor of a consumer that has nothing pending, or most if it doesn't need any message up to that sequence. The
// consumer's own count isn't proof of that: it is updated after the stream, and in a cluster by a server whose copy of the stream
// may be behind. So the leader of the stream is asked for a message that the consumer would deliver.
func (r *reader) idleFloor(ctx context.Context, c *jetstream.ConsumerInfo, most uint64) (uint64, error) {
	for _, filter := range filters(c.Config) {
		m, err := jsapi.Next(ctx, r.js, r.stream, c.AckFloor.Stream+1, filter)
		if err != nil {
			return 0, fmt.Errorf("look for messages of consumer %q: %w", c.Name, err)
		}
		if m != nil {
			most = min(most, m.Sequence-1)
		}
	}
	return most, nil
}

// filters returns the subjects of a consumer.
func filters(c jetstream.ConsumerConfig) []string {
	switch {
	case len(c.FilterSubjects) > 0:
		return c.FilterSubjects
	case c.FilterSubject != "":
		return []string{c.FilterSubject}
	}
	return []string{">"}
}
