package trim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/retry"
)

const (
	// MarkKey is the key in the metadata of a stream that may be trimmed. Its value is the name of the stream, so that a copy of the
	// stream isn't trimmed.
	MarkKey = "millrace-trim"

	// ConsumersKey is the key in the metadata of a stream for the registered consumers: their names, in order, separated by commas.
	ConsumersKey = "millrace-consumers"
)

// Policy says which streams may be trimmed.
type Policy int

// The policies.
const (
	Auto   Policy = iota // streams with the mark; see MarkKey
	Always               // any stream with retention by limits, also one that other streams copy
	Never
)

// trims reports whether a stream may be trimmed.
func (p Policy) trims(c jetstream.StreamConfig) bool {
	return p == Always || p == Auto && Marked(c)
}

// Marked reports whether a stream has the mark, which a copy of it doesn't have.
func Marked(c jetstream.StreamConfig) bool { return c.Metadata[MarkKey] == c.Name }

// Registered returns the names of the consumers that must exist before anything is removed from a stream.
func Registered(c jetstream.StreamConfig) []string {
	return strings.FieldsFunc(c.Metadata[ConsumersKey], func(r rune) bool { return r == ',' })
}

// unregistered returns those consumers that are not registered.
func unregistered(c jetstream.StreamConfig, consumers []string) []string {
	there := Registered(c)
	return slices.DeleteFunc(slices.Clone(consumers), func(name string) bool { return slices.Contains(there, name) })
}

func joined(consumers []string) string {
	all := slices.Sorted(slices.Values(consumers))
	return strings.Join(slices.Compact(all), ",")
}

// WithMark returns the metadata of a stream, and in addition the mark and registered consumers.
func WithMark(c jetstream.StreamConfig, consumers []string) map[string]string {
	all := maps.Clone(c.Metadata)
	if all == nil {
		all = map[string]string{}
	}
	all[MarkKey], all[ConsumersKey] = c.Name, joined(append(Registered(c), consumers...))
	return all
}

// MetadataFlags returns metadata as flags of `nats stream add` and `nats stream edit`, which replaces all metadata.
func MetadataFlags(metadata map[string]string) string {
	var flags strings.Builder
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !strings.HasPrefix(key, "_nats.") { // the server's own
			fmt.Fprintf(&flags, " --metadata '%s=%s'", key, metadata[key])
		}
	}
	return flags.String()
}

// May returns an error if the user lacks a permission to trim the stream: to purge it, and unless these consumers are registered, to change its
// metadata. It makes requests that the server refuses in any case.
func May(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, consumers []string) error {
	if err := refuses(ctx, js, "STREAM.PURGE."+c.Name, map[string]any{"seq": 1, "keep": 1}); err != nil || len(unregistered(c, consumers)) == 0 {
		return err
	}
	return refuses(ctx, js, "STREAM.UPDATE."+c.Name, map[string]any{"name": c.Name + "-"})
}

// refuses makes a request that makes no sense, and returns an error unless the server says so. A request without permission gets no answer.
func refuses(ctx context.Context, js jetstream.JetStream, request string, body any) error {
	err := jsapi.Request(ctx, js, request, body, &struct{}{})
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.Code == badRequest {
		return nil
	}
	return fmt.Errorf("%s: %w", jsapi.Of(js).Subject(request), err)
}

// badRequest is the code of the server's error for a request that makes no sense.
const badRequest = 400

const (
	// registerTries is how often Register writes. Another worker that registers at the same moment may overwrite what it wrote,
	// because the server changes a configuration as a whole.
	registerTries = 5

	// registerPause is how long Register waits before it reads what is there after it has written.
	registerPause = 200 * time.Millisecond
)

// Register adds consumers to the registered ones of a stream that may be trimmed, and returns when they are there. It does nothing on other streams.
// It never removes a name: a deployment that is gone keeps everything until an administrator removes its consumers from the metadata.
func Register(ctx context.Context, js jetstream.JetStream, stream string, policy Policy, consumers []string) error {
	for range registerTries {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("look up stream %q: %w", stream, err)
		}
		c := s.CachedInfo().Config
		if !policy.trims(c) || len(unregistered(c, consumers)) == 0 {
			return nil
		}
		marked := Marked(c)
		if c.Metadata = WithMark(c, consumers); !marked {
			delete(c.Metadata, MarkKey) // the policy is Always
		}
		if _, err := js.UpdateStream(ctx, c); err != nil {
			return fmt.Errorf("register the consumers in the metadata of stream %q, so that it keeps their inputs: %w (allow the worker's user to publish on "+
				"%s)", stream, err, jsapi.Of(js).Subject("STREAM.UPDATE."+stream))
		}
		if !retry.Sleep(ctx, registerPause) {
			return ctx.Err()
		}
	}
	return errRegister
}

var errRegister = errors.New("could not register the consumers in the metadata of the stream, because others change it at the same time")
