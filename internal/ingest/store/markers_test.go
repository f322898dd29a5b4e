package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

var created = time.Unix(1_700_000_000, 0)

func position(input uint64) Position { return Position{Sequence: input, Stored: int64(input)} }

// result returns the message of an input's result.
func result(input uint64) []*nats.Msg {
	return []*nats.Msg{{Subject: fmt.Sprint("results.", input), Header: nats.Header{jetstream.MsgIDHeader: {fmt.Sprint(input)}}}}
}

// keptMarkers is a stream without faults. It implements Markers. The model of the lease has streams with faults.
type keptMarkers struct {
	stored []keptMessage // messages from sequence 1 on
	last   StoredMarker
}

type keptMessage struct {
	subject string
	header  nats.Header
}

// take begins a lease with atomic batches.
func (s *keptMarkers) take(t *testing.T, owner string) *Chain {
	t.Helper()
	c, _, err := OpenChains(t.Context(), ChainOptions{Owner: owner, Created: created, Way: Atomic, Again: always}, s, nil)
	natstest.OK(t, err)
	return c
}

func (s *keptMarkers) Write(_ context.Context, _ Way, expected uint64, msgs []*nats.Msg, m *Marker) (uint64, error) {
	if s.last.At != expected {
		return 0, &WrongLastError{Last: s.last.At}
	}
	for _, each := range msgs {
		s.stored = append(s.stored, keptMessage{each.Subject, each.Header})
	}
	s.stored = append(s.stored, keptMessage{})
	s.last = StoredMarker{Marker: *m, At: uint64(len(s.stored))}
	return s.last.At, nil
}

func (s *keptMarkers) Last(context.Context) (StoredMarker, error) { return s.last, nil }

func (s *keptMarkers) Next(_ context.Context, behind uint64, subject string) (uint64, nats.Header, error) {
	for i := behind; i < uint64(len(s.stored)); i++ {
		if s.stored[i].subject == subject {
			return i + 1, s.stored[i].header, nil
		}
	}
	return 0, nil, nil
}

func (s *keptMarkers) Begun(context.Context, uint64, uint64) (uint64, error) { return 0, nil }
