package commit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
)

const (
	headerExpected        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerRollup          = "Nats-Rollup"

	// codeWrongLast is JetStream's error code for another last message of a subject.
	codeWrongLast jetstream.ErrorCode = 10071

	// codeNoBatches is JetStream's error code for a fast batch on a stream that takes none.
	codeNoBatches jetstream.ErrorCode = 10205

	// fenceAttempts is the number of attempts to store a fence while the server ends another batch instead.
	fenceAttempts = 3
)

// HeaderBytes returns the most bytes that Write adds to the headers of a message.
func (s *Stream) HeaderBytes() int {
	const separators = 2 * len(": \r\n")
	return len(headerExpected) + len("18446744073709551615") + len(headerExpectedSubject) + len(s.Subject) + separators
}

// Write implements Store.
func (s *Stream) Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error) {
	marker := s.message(expected, m)
	switch {
	case way == Fast && len(msgs) > 0:
		sequence, err = s.Publisher.StoreFast(ctx, batchID(expected), append(s.opening(marker, msgs), marker))
	case way == Fast:
		sequence, err = s.storeFence(ctx, batchID(expected), marker)
	case len(msgs) > 0:
		sequence, err = s.Publisher.StoreAtomic(ctx, append(msgs[:len(msgs):len(msgs)], marker), way == Checked)
	default:
		sequence, err = s.Publisher.Store(ctx, marker)
	}
	return sequence, wrongLast(err)
}

// batchID returns the id of the only fast batch that may follow a marker.
func batchID(marker uint64) string { return "millrace-" + strconv.FormatUint(marker, 10) }

// opening returns the messages of a fast batch before its marker. The first one has the marker's condition: if it doesn't hold, the server doesn't
// begin the batch, and refuses all its messages. The server looks at a message's id before its condition, so the first one must not
// have an id that the server may know. If it has one, another message goes before it.
func (s *Stream) opening(marker *nats.Msg, msgs []*nats.Msg) []*nats.Msg {
	first, rest := &nats.Msg{Subject: s.Subject + ".begin", Header: nats.Header{}}, msgs
	if len(msgs[0].Header[jetstream.MsgIDHeader]) == 0 {
		first, rest = &nats.Msg{Subject: msgs[0].Subject, Header: maps.Clone(msgs[0].Header), Data: msgs[0].Data}, msgs[1:]
	}
	first.Header[headerExpected], first.Header[headerExpectedSubject] = marker.Header[headerExpected], []string{s.Subject}
	return append(append(make([]*nats.Msg, 0, len(msgs)+2), first), rest...)
}

// storeFence stores a marker alone, as a fast batch with the id of the one that another owner may have under way behind the last marker. If there is
// one, the server ends it at the first attempt, and it can't begin anew behind the fence.
func (s *Stream) storeFence(ctx context.Context, id string, marker *nats.Msg) (sequence uint64, err error) {
	for range fenceAttempts {
		if sequence, err = s.Publisher.StoreFast(ctx, id, []*nats.Msg{marker}); !errors.Is(err, publisher.ErrBatchEnded) {
			break
		}
	}
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.ErrorCode == codeNoBatches {
		return s.Publisher.Store(ctx, marker) // the server ended all fast batches when the stream was changed
	}
	return sequence, err
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
