package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server's codes for a message that another stream than the expected one would store, and for one that the stream can't store.
const (
	streamMismatch = 10060
	storeFailed    = 10077
)

// Refusal returns the error of a user who lacks a permission, or nil. Refusals of a connection are for good. The server doesn't answer such a
// user's publish.
func Refusal(nc *nats.Conn) error {
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: docs/security.md lists the permissions that each user needs", err)
	}
	return nil
}

// Lost reports whether a message wasn't stored, or may not have been, because of the connection.
func Lost(err error) bool {
	for _, kind := range []error{nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting, nats.ErrTimeout, context.DeadlineExceeded,
		jetstream.ErrAsyncPublishTimeout} {
		if errors.Is(err, kind) {
			return true
		}
	}
	broken := (*net.OpError)(nil)
	return errors.As(err, &broken)
}

// Hopeless reports whether no message can be stored on that subject.
func Hopeless(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.As(err, &api) && api.ErrorCode == streamMismatch || errors.Is(err, nats.ErrPermissionViolation)
}

// Explain adds what to do to the server's error for a message that the stream should have stored.
func Explain(err error, nc *nats.Conn, stream, subject string) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w of %d bytes, with its headers", errTooLarge, nc.MaxPayload())
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream stores %s: start a worker with MILLRACE_PROVISION=true, which creates the stream %s, or check --subject", subject, stream)
	case errors.As(err, &api) && api.ErrorCode == streamMismatch:
		return fmt.Errorf("%s is a subject of another stream than %s, which the worker reads: set MILLRACE_STREAM, or check --subject", subject, stream)
	case errors.As(err, &api) && api.ErrorCode == storeFailed:
		return explainFull(err, stream, api.Description)
	}
	return err
}

// explainFull adds what to do if the stream refuses a message because the stream is full. description is the server's.
func explainFull(err error, stream, description string) error {
	switch description {
	case "maximum bytes exceeded":
		return fmt.Errorf("the stream %s is full: wait until workers have processed payloads, or raise its limit: nats stream edit %s --max-bytes SIZE "+
			"(for a stream that a worker will create: MILLRACE_STREAM_MAX_BYTES): %w", stream, stream, err)
	case "maximum messages exceeded":
		return fmt.Errorf("the stream %s is full: wait until workers have processed payloads, or raise its limit: nats stream edit %s --max-msgs NUMBER: %w",
			stream, stream, err)
	}
	return err
}
