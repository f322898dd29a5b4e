package commit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Way is a method of storing batches.
type Way uint8

const (
	// Atomic stores a batch and its marker together or not at all.
	Atomic Way = iota

	// Checked is like Atomic, but slower, because the server answers each message. If the server refuses a message, the
	// error contains the reason, and not only that the batch is incomplete.
	Checked

	// Fast stores messages one by one, in order, and then the marker. The stream may therefore contain the first
	// messages of a batch without its marker, and more of them may be in transit. If the stream is full, the server may
	// even refuse a message and store later ones. Fast is faster for small messages. The server refuses it on a stream
	// with replicas.
	Fast
)

// Store is the stream of a chain on the server.
type Store interface {
	// Last returns the last marker. Without a marker, it returns the zero StoredMarker.
	Last(ctx context.Context) (StoredMarker, error)

	// Write stores messages in their order and then a marker, and returns the marker's sequence. It succeeds only if
	// the last marker has sequence expected, where 0 means that there is no marker. Without messages, Fast first ends a
	// fast batch that has begun after the expected marker. After an error, the messages and the marker may be stored or
	// not. After an error with Fast, some messages may be stored later unless their batch is ended. If the last marker
	// isn't the expected one, the error may be a *WrongLastError. Write may add headers to the messages.
	Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error)

	// Begun returns the last input that may have messages in fast batches that begin between the two stream sequences,
	// or 0.
	Begun(ctx context.Context, behind, before uint64) (until uint64, err error)

	// Next returns the first message with the given subject after stream sequence behind. sequence is 0 if there is
	// none.
	Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error)
}

// WrongLastError is the error of a write that expected a different last marker.
type WrongLastError struct {
	Last uint64 // sequence of the last marker; 0 if there is none
}

func (e *WrongLastError) Error() string {
	return fmt.Sprintf("the last commit marker is %d", e.Last)
}

var (
	// ErrFenced means that another worker has taken the partition over. That worker stores the missing results.
	ErrFenced = errors.New("another worker has taken the partition over")

	// ErrLost means that the last marker is gone, and an older marker may be the last one again. The stream was purged,
	// recreated or restored, or its server has lost its last messages.
	ErrLost = errors.New("the last commit marker is gone: the stream was purged, recreated or restored")
)
