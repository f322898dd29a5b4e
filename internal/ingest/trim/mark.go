package trim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

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
