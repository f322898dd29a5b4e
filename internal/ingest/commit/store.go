package commit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Way is how a chain stores batches.
type Way uint8

const (
	// Atomic stores a batch and its marker together or not at all.
	Atomic Way = iota

	// Checked is Atomic, and the server answers to each message. So the error says why it doesn't take a message, and not only that a batch is
	// incomplete. It is slow.
	Checked

	// Fast stores messages one by one, in order, and then the marker. So the stream may have some messages of a batch without its marker, and
	// more of them may be on their way. These are the first ones, except on a stream without room, where the server may refuse a message and
	// store later ones. It is faster for small messages on a stream without replicas. A server with replicas refuses it.
	Fast
)

// Store is the stream of a chain, as the server offers it.
type Store interface {
	// Last returns the last marker. Its At is 0 if there is none.
	Last(ctx context.Context) (StoredMarker, error)

	// Write stores messages in their order and then a marker, if the last marker has the expected sequence; 0 means that there is none.
	// It returns the sequence of the new marker. If there are messages, way says how they are stored. If there are none, Fast ends a fast batch
	// that has begun behind the expected marker before it stores the new one. After an error nothing of it may be stored, everything, or
	// with Fast some of the messages, and others later, unless their batch is ended. If the last marker is another one, the error may be a
	// *WrongLastError. Write may add headers to the messages.
	Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error)

	// Begun returns the last input that may have messages in the fast batches that began behind one stream sequence and before another; 0 if none
	// did.
	Begun(ctx context.Context, behind, before uint64) (until uint64, err error)

	// Next returns the first message behind a stream sequence with that subject. Its sequence is 0 if there is none.
	Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error)
}

// WrongLastError is the error of a write that expected another last marker.
type WrongLastError struct {
	Last uint64 // the sequence of the last marker; 0: there is none
}

func (e *WrongLastError) Error() string {
	return fmt.Sprintf("the last commit marker is %d", e.Last)
}

var (
	// ErrFenced means that another worker has taken the partition over. It stores what this one could not.
	ErrFenced = errors.New("another worker has taken the partition over")

	// ErrLost means that the last marker is gone, or an older one is the last again: the stream was purged, recreated or restored, or its
	// server has lost its last messages.
	ErrLost = errors.New("the last commit marker is gone: the stream was purged, recreated or restored")
)
