package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/publisher"
)

// Stream implements Store with a stream on a server.
type Stream struct {
	Name    string // the stream's name
	Subject string // subject of the partition's markers
	// Rollup makes each marker remove the earlier ones. A work queue needs it, because nothing else removes markers
	// there.
	Rollup    bool
	Publisher *publisher.Windowed // for messages
	JS        jetstream.JetStream // for requests
}

const readTimeout = 5 * time.Second

// Last implements Store.
func (s *Stream) Last(ctx context.Context) (StoredMarker, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Last(ctx, s.JS, s.Name, s.Subject)
	if err != nil || m == nil {
		return StoredMarker{}, err
	}
	last := StoredMarker{At: m.Sequence}
	if jsapi.IsDeleteMarker(m.Header, m.Data) {
		return last, nil // the stream removed the commit marker because of its age
	}
	if err := json.Unmarshal(m.Data, &last.Marker); err != nil {
		return StoredMarker{}, fmt.Errorf("the last message on %q is not a commit marker (somebody else publishes there): %w", s.Subject, err)
	}
	return last, nil
}

// Next implements Store.
func (s *Stream) Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Next(ctx, s.JS, s.Name, behind+1, subject)
	if err != nil || m == nil {
		return 0, nil, err
	}
	return m.Sequence, m.Header, nil
}
