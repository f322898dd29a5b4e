package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
)

// Stream implements Store with a stream on a server.
type Stream struct {
	Name      string              // the stream's name
	Subject   string              // subject of the partition's markers
	Rollup    bool                // each marker removes the ones before it, because nothing else does: the stream is a work queue
	Publisher *publisher.Windowed // sends to the server
	Conn      *nats.Conn          // connection for requests
}

// readTimeout bounds one request that reads a message.
const readTimeout = 5 * time.Second

// Last implements Store.
func (s *Stream) Last(ctx context.Context) (StoredMarker, error) {
	m, err := s.get(ctx, map[string]any{"last_by_subj": s.Subject})
	if err != nil || m == nil {
		return StoredMarker{}, err
	}
	last := StoredMarker{At: m.Sequence}
	if err := json.Unmarshal(m.Data, &last.Marker); err != nil {
		return StoredMarker{}, fmt.Errorf("the last message on %q is not a commit marker (somebody else publishes there): %w", s.Subject, err)
	}
	return last, nil
}

// Next implements Store.
func (s *Stream) Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	m, err := s.get(ctx, map[string]any{"seq": behind + 1, "next_by_subj": subject})
	if err != nil || m == nil {
		return 0, nil, err
	}
	if h, err = nats.DecodeHeadersMsg(m.Header); err != nil {
		h = nil // a message from another program
	}
	return m.Sequence, h, nil
}

// message is a message of the stream.
type message struct {
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

// get reads a message. It returns nil if there is none.
func (s *Stream) get(ctx context.Context, which map[string]any) (*message, error) {
	request, err := json.Marshal(which)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	msg, err := s.Conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.Name, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message message             `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, err
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, nil
		}
		return nil, e
	}
	return &answer.Message, nil
}
