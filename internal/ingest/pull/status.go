package pull

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The server's status codes, from the first line of a header.
const (
	wordHeartbeat  = "100"
	wordBad        = "400" // the request can't be read or doesn't suit the consumer
	wordNone       = "404" // no messages, and the request does not wait for any
	wordExpired    = "408" // the request has expired
	wordConflict   = "409" // the request has ended, for the reason that follows
	wordRequired   = "412"
	wordPinned     = "423" // another client is pinned
	wordNobody     = "503" // no server answers for the consumer
	pendingHeader  = "Nats-Pending-Messages"
	bytesHeader    = "Nats-Pending-Bytes"
	conflictGone   = "consumer deleted"
	conflictDone   = "batch completed" // all requested messages have been sent, or are about to be
	conflictPush   = "consumer is push based"
	conflictBounds = "exceeded maxrequest" // the consumer's own limits for a request
)

// conflictSize is the server's reason for ending a request that its next message doesn't fit.
const conflictSize = "message size exceeds maxbytes"

// fatal returns an error for a conflict that no further request would resolve, and nil for any other.
func fatal(why string) error {
	switch low := strings.ToLower(why); {
	case strings.Contains(low, conflictGone):
		return ErrGone
	case strings.Contains(low, conflictBounds), strings.Contains(low, conflictPush):
		return fmt.Errorf("the consumer refuses the pull: %s", why)
	}
	return nil
}

// unused returns how much more an ended request could have delivered, according to the given header.
func unused(raw *nats.Msg, header string) int {
	n, err := strconv.Atoi(raw.Header.Get(header))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
