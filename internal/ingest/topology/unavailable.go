package topology

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Error codes of the server for temporary errors. nats-server lists all codes in server/errors.json.
const (
	codeNoPeers         = 10005 // too few servers of the cluster can store the stream, for example while the cluster starts
	codeNotLeader       = 10009
	codeStreamOffline   = 10118
	codeConsumerOffline = 10119
)

// codeUnavailable is the code of errors about JetStream itself. For example, JetStream isn't ready, isn't enabled, or has no
// resources.
const codeUnavailable = 503

// lost has the errors of requests without an answer.
var lost = []error{
	context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrStaleConnection,
	nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
}

// Unavailable reports whether an error of a JetStream API request may be temporary. Such an error means that the server didn't
// answer or can't answer now. A request that the worker's user may not send gets no answer either.
func Unavailable(err error) bool {
	if slices.ContainsFunc(lost, func(e error) bool { return errors.Is(err, e) }) {
		return true
	}
	var refusal jetstream.JetStreamError
	if !errors.As(err, &refusal) || refusal.APIError() == nil {
		return false
	}
	switch refusal.APIError().ErrorCode {
	case codeNoPeers, codeNotLeader, codeStreamOffline, codeConsumerOffline:
		return true
	}
	return refusal.APIError().Code == codeUnavailable
}
