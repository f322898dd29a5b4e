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

// May returns an error if the user lacks the permission to purge the stream. If a given consumer isn't registered, the
// user also needs the permission to change the stream's metadata. May sends only requests that the server refuses in
// any case.
func May(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, consumers []string) error {
	if err := refuses(ctx, js, "STREAM.PURGE."+c.Name, map[string]any{"seq": 1, "keep": 1}); err != nil || len(unregistered(c, consumers)) == 0 {
		return err
	}
	return refuses(ctx, js, "STREAM.UPDATE."+c.Name, map[string]any{"name": c.Name + "-"})
}

// refuses sends an invalid request, and returns an error unless the server refuses it as invalid. The server doesn't
// answer a request without permission.
func refuses(ctx context.Context, js jetstream.JetStream, request string, body any) error {
	err := jsapi.Request(ctx, js, request, body, &struct{}{})
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.Code == badRequest {
		return nil
	}
	return fmt.Errorf("%s: %w", jsapi.Of(js).Subject(request), err)
}

// badRequest is the server's error code for an invalid request.
const badRequest = 400

const (
	// registerTries is the maximum number of times that Register writes. A worker that registers at the same time may
	// overwrite the change, because the server replaces the whole configuration.
	registerTries = 5

	// registerPause is the time that Register waits after it has written, before it checks the result.
	registerPause = 200 * time.Millisecond
)

// Register registers consumers of a stream that may be trimmed, and returns when they are registered. It ignores other
// streams. It never unregisters a consumer. After a deployment is gone, inputs stay until an administrator deletes its
// consumers from the metadata.
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
