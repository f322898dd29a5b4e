package trim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
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
		return "this worker's consumers aren't registered in its metadata: " + s.Detail
	}
	return ""
}

func (s State) held(why Reason, detail string) State {
	s.Held, s.Detail = why, detail
	return s
}

const (
	// MarkKey is the metadata key that marks a stream that may be trimmed. Its value is the stream's name, so that a
	// copy of the stream isn't trimmed.
	MarkKey = "millrace-trim"

	// ConsumersKey is the metadata key of a stream's registered consumers. Its value contains their sorted names,
	// separated by commas.
	ConsumersKey = "millrace-consumers"
)

// Policy selects the streams that may be trimmed.
type Policy int

// The policies.
const (
	Auto   Policy = iota // streams with the mark; see MarkKey
	Always               // any stream with limits retention, even if other streams copy it
	Never
)

// trims reports whether a stream may be trimmed.
func (p Policy) trims(c jetstream.StreamConfig) bool {
	return p == Always || p == Auto && Marked(c)
}

// Marked reports whether a stream has the mark. A copy of a marked stream doesn't have it.
func Marked(c jetstream.StreamConfig) bool { return c.Metadata[MarkKey] == c.Name }

// Registered returns the names of the consumers that must exist before anything is removed from a stream.
func Registered(c jetstream.StreamConfig) []string {
	return strings.FieldsFunc(c.Metadata[ConsumersKey], func(r rune) bool { return r == ',' })
}

// unregistered returns the given consumers that are not registered.
func unregistered(c jetstream.StreamConfig, consumers []string) []string {
	there := Registered(c)
	return slices.DeleteFunc(slices.Clone(consumers), func(name string) bool { return slices.Contains(there, name) })
}

func joined(consumers []string) string {
	all := slices.Sorted(slices.Values(consumers))
	return strings.Join(slices.Compact(all), ",")
}

// WithMark returns the metadata of a stream with the mark added and the given consumers registered.
func WithMark(c jetstream.StreamConfig, consumers []string) map[string]string {
	all := maps.Clone(c.Metadata)
	if all == nil {
		all = map[string]string{}
	}
	all[MarkKey], all[ConsumersKey] = c.Name, joined(append(Registered(c), consumers...))
	return all
}

// MetadataFlags returns metadata as flags for `nats stream add` and `nats stream edit`. The latter replaces all
// metadata.
func MetadataFlags(metadata map[string]string) string {
	var flags strings.Builder
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !strings.HasPrefix(key, "_nats.") { // set by the server
			fmt.Fprintf(&flags, " --metadata '%s=%s'", key, metadata[key])
		}
	}
	return flags.String()
}
