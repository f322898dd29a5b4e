package commit

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/retry"
)

// Headers that identify results; see package client.
const (
	HeaderID   = client.HeaderID
	HeaderPart = client.HeaderPart
)

// ID returns the id of a result or a dead letter.
func ID(h nats.Header) string {
	if own := h[HeaderID]; len(own) > 0 {
		return own[0]
	}
	if id := h[jetstream.MsgIDHeader]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// maxBehind is the maximum number of messages with one subject that are read back. A batch has fewer messages, and
// only a few batches can follow a marker.
const maxBehind = 1 << 16

// readings reads the messages between two markers, which may be stored without a marker that covers them.
type readings struct {
	store          Store
	behind, before uint64              // stream sequences of the two markers; 0 and 0 if there are no such messages
	ids            map[string][]string // ids that were read, by subject
}

// of returns the ids of the messages with the given subject.
func (r *readings) of(ctx context.Context, subject string) ([]string, error) {
	if ids, known := r.ids[subject]; known || r.behind == 0 {
		return ids, nil
	}
	var ids []string
	for at := r.behind; ; {
		sequence, h, err := next(ctx, r.store, at, subject)
		if err != nil {
			return nil, fmt.Errorf("read back what is stored on %q behind a commit marker: %w", subject, err)
		}
		if sequence == 0 || sequence > r.before {
			break
		}
		if ids = append(ids, ID(h)); len(ids) > maxBehind {
			return nil, fmt.Errorf("more than %d messages on %q are behind the commit marker %d", maxBehind, subject, r.behind)
		}
		at = sequence
	}
	if r.ids == nil {
		r.ids = map[string][]string{}
	}
	r.ids[subject] = ids
	return ids, nil
}

// has reports whether a message with the given subject and id is stored.
func (r *readings) has(ctx context.Context, subject, id string) (bool, error) {
	ids, err := r.of(ctx, subject)
	return slices.Contains(ids, id), err
}

// readAttempts is the number of attempts to read a message back.
const readAttempts = 8

// next calls Store.Next until it succeeds, at most readAttempts times.
func next(ctx context.Context, store Store, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	for attempt := 1; ; attempt++ {
		if sequence, h, err = store.Next(ctx, behind, subject); err == nil || attempt == readAttempts || !retry.Sleep(ctx, retry.Delay(attempt)) {
			return sequence, h, err
		}
	}
}
