package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

const (
	// readTimeout bounds one request that reads a message.
	readTimeout = 5 * time.Second

	// codeWrongLast is JetStream's error code for another last message of a subject.
	codeWrongLast jetstream.ErrorCode = 10071

	headerExpected        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerRollup          = "Nats-Rollup"
)

// HeaderBytes returns the most bytes that Write adds to the headers of a message.
func (s *Stream) HeaderBytes() int {
	const separators = 2 * len(": \r\n")
	return len(headerExpected) + len("18446744073709551615") + len(headerExpectedSubject) + len(s.Subject) + separators
}

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

// Write implements Store.
func (s *Stream) Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error) {
	marker := s.message(expected, m)
	switch {
	case len(msgs) == 0:
		sequence, err = s.Publisher.Store(ctx, marker)
	case way == Fast:
		last, subject := marker.Header[headerExpected], []string{s.Subject}
		for _, each := range msgs {
			each.Header[headerExpected], each.Header[headerExpectedSubject] = last, subject
		}
		sequence, err = s.Publisher.StoreFast(ctx, append(msgs[:len(msgs):len(msgs)], marker))
	default:
		sequence, err = s.Publisher.StoreAtomic(ctx, append(msgs[:len(msgs):len(msgs)], marker), way == Checked)
	}
	return sequence, wrongLast(err)
}

// message returns the message of a marker.
func (s *Stream) message(expected uint64, m *Marker) *nats.Msg {
	h := nats.Header{headerExpected: {strconv.FormatUint(expected, 10)}}
	if s.Rollup {
		h[headerRollup] = []string{"sub"}
	}
	return &nats.Msg{Subject: s.Subject, Header: h, Data: m.body()}
}

// wrongLast returns the error of a write as a *WrongLastError if that is what it means.
func wrongLast(err error) error {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) || refused.ErrorCode != codeWrongLast {
		return err
	}
	wrong := &WrongLastError{}
	if _, failed := fmt.Sscanf(refused.Description, "wrong last sequence: %d", &wrong.Last); failed != nil {
		return err
	}
	return wrong
}
