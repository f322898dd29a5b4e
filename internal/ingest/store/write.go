package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
)

const (
	headerExpected        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerRollup          = "Nats-Rollup"

	// headerUntil is a header of the first message of a fast batch. It contains the sequence of the last input that may
	// have messages in the batch.
	headerUntil = "Millrace-Until"

	// begin is the last token of the subject of a fast batch's first message. The subject of the markers precedes it.
	begin = ".begin"

	// codeWrongLast is JetStream's error code for an unexpected last message of a subject.
	codeWrongLast jetstream.ErrorCode = 10071

	// JetStream's error codes for a fast batch if the stream accepts no fast batches, or has too many of them.
	codeNoBatches      jetstream.ErrorCode = 10205
	codeTooManyBatches jetstream.ErrorCode = 10211

	// fenceAttempts is the number of attempts to store a marker. An attempt fails if the server ends another batch
	// instead.
	fenceAttempts = 3
)

// HeaderBytes is the maximum number of bytes that Write adds to the headers of a message. Atomic batches need the most.
const HeaderBytes = len("Nats-Batch-Id: 0123456789012345678901\r\n") + len("Nats-Batch-Sequence: 1000\r\n")

// Write implements Markers.
func (s *Stream) Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error) {
	marker := s.message(expected, m)
	switch {
	case way == Fast:
		sequence, err = s.writeFast(ctx, batchID(expected), msgs, marker, m.Until)
	case len(msgs) > 0:
		sequence, err = s.Publisher.StoreAtomic(ctx, append(msgs[:len(msgs):len(msgs)], marker), way == Checked)
	default:
		sequence, err = s.Publisher.Store(ctx, marker)
	}
	return sequence, wrongLast(err)
}

// batchID returns the id of the only fast batch that may follow a marker.
func batchID(marker uint64) string { return "millrace-" + strconv.FormatUint(marker, 10) }

// writeFast stores messages as a fast batch, and then the marker. The server may refuse a message and store the next
// one. writeFast therefore waits for all outstanding confirmations after the first message, before the last part of a
// result, and before the marker.
func (s *Stream) writeFast(ctx context.Context, id string, msgs []*nats.Msg, marker *nats.Msg, until uint64) (sequence uint64, err error) {
	if len(msgs) > 0 {
		msgs = append([]*nats.Msg{s.beginning(marker, until)}, msgs...)
		confirm := func(i int) bool { return i == 1 || isLastPart(msgs[i].Header) }
		if _, err := s.Publisher.StoreFast(ctx, FastBatch{ID: id, Messages: msgs, Confirm: confirm}); err != nil {
			return 0, err
		}
	}
	return s.storeAlone(ctx, id, marker)
}

// isLastPart reports whether a message is the last one of several parts.
func isLastPart(h nats.Header) bool {
	part := h[HeaderPart]
	if len(part) == 0 {
		return false
	}
	i, n, _ := strings.Cut(part[0], "/")
	return i == n && n != "1"
}

// beginning returns the first message of a fast batch. It has the marker's condition. If the condition doesn't hold,
// the server refuses all messages of the batch. The message has no id, because the server checks ids before conditions.
// It would skip a message with a known id, and still begin the batch.
func (s *Stream) beginning(marker *nats.Msg, until uint64) *nats.Msg {
	return &nats.Msg{Subject: s.Subject + begin, Header: nats.Header{
		headerExpected: marker.Header[headerExpected], headerExpectedSubject: {s.Subject}, headerUntil: {strconv.FormatUint(until, 10)},
	}}
}

// storeAlone stores a marker as a fast batch. id is the id of the only fast batch that any worker may have begun after
// the last marker. If that batch is open, the server ends it at the first attempt, and it can't begin again after the
// marker.
func (s *Stream) storeAlone(ctx context.Context, id string, marker *nats.Msg) (sequence uint64, err error) {
	alone := FastBatch{ID: id, Messages: []*nats.Msg{marker}}
	for range fenceAttempts {
		if sequence, err = s.Publisher.StoreFast(ctx, alone); !errors.Is(err, ErrBatchEnded) {
			break
		}
	}
	switch {
	case errors.Is(err, ErrBatchStuck):
		return s.Publisher.Store(ctx, marker)
	case !isRefused(err, codeNoBatches, codeTooManyBatches):
		return sequence, err
	}
	// The server has no fast batch with this id. Either it ended all fast batches when the stream was changed, or it has
	// too many others. If the server accepts fast batches again, one may have begun in the meantime.
	if sequence, err = s.Publisher.Store(ctx, marker); err != nil {
		return 0, err
	}
	_, err = s.Publisher.StoreFast(ctx, alone)
	if errors.Is(err, ErrBatchEnded) || isRefused(err, codeNoBatches, codeTooManyBatches, codeWrongLast) {
		err = nil
	}
	return sequence, err
}

// isRefused reports whether an error is the server's refusal with one of these codes.
func isRefused(err error, codes ...jetstream.ErrorCode) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && slices.Contains(codes, refused.ErrorCode)
}

// Begun implements Markers.
func (s *Stream) Begun(ctx context.Context, behind, before uint64) (until uint64, err error) {
	for count := 0; ; count++ {
		sequence, h, err := s.Next(ctx, behind, s.Subject+begin)
		if err != nil || sequence == 0 || sequence > before {
			return until, err
		}
		if count == maxBehind {
			return 0, fmt.Errorf("more than %d batches began behind the commit marker %d", maxBehind, behind)
		}
		input, err := strconv.ParseUint(h.Get(headerUntil), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("message %d on %q doesn't begin a batch (somebody else publishes there): %w", sequence, s.Subject+begin, err)
		}
		behind, until = sequence, max(until, input)
	}
}

// message returns the message that stores a marker, on the condition that the last marker has sequence expected.
func (s *Stream) message(expected uint64, m *Marker) *nats.Msg {
	h := nats.Header{headerExpected: {strconv.FormatUint(expected, 10)}}
	if s.Rollup {
		h[headerRollup] = []string{"sub"}
	}
	return &nats.Msg{Subject: s.Subject, Header: h, Data: m.body()}
}

// wrongLast converts the server's error for an unexpected last marker to a *WrongLastError. It returns all other errors
// unchanged.
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

// Stream implements Markers with a stream on a server.
type Stream struct {
	Name    string // the stream's name
	Subject string // subject of the partition's markers
	// Rollup makes each marker remove the earlier ones. A work queue needs it, because nothing else removes markers
	// there.
	Rollup    bool
	Publisher *Windowed           // for messages
	JS        jetstream.JetStream // for requests
}

const readTimeout = 5 * time.Second

// Last implements Markers.
func (s *Stream) Last(ctx context.Context) (StoredMarker, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Last(ctx, s.JS, s.Name, s.Subject)
	if err != nil || m == nil {
		return StoredMarker{}, err
	}
	last := StoredMarker{At: m.Sequence}
	if pull.IsDeleteMarker(m.Header, m.Data) {
		return last, nil // the stream removed the commit marker because of its age
	}
	if err := json.Unmarshal(m.Data, &last.Marker); err != nil {
		return StoredMarker{}, fmt.Errorf("the last message on %q is not a commit marker (somebody else publishes there): %w", s.Subject, err)
	}
	return last, nil
}

// Next implements Markers.
func (s *Stream) Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Next(ctx, s.JS, s.Name, behind+1, subject)
	if err != nil || m == nil {
		return 0, nil, err
	}
	return m.Sequence, m.Header, nil
}
