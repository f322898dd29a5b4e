package pull

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Codes, headers and descriptions of the server's status messages. A code is in the first line of a header.
const (
	wordHeartbeat  = "100"
	wordBad        = "400" // the request is invalid, or not allowed for the consumer
	wordNone       = "404" // no messages for a request that doesn't wait
	wordExpired    = "408" // the request has expired
	wordConflict   = "409" // the request has ended; the description has the reason
	wordRequired   = "412"
	wordPinned     = "423" // another client is pinned
	wordNobody     = "503" // no server responds for the consumer
	pendingHeader  = "Nats-Pending-Messages"
	bytesHeader    = "Nats-Pending-Bytes"
	conflictGone   = "consumer deleted"
	conflictDone   = "batch completed" // the server has sent all requested messages, or will send them
	conflictPush   = "consumer is push based"
	conflictBounds = "exceeded maxrequest" // the consumer's own limits for a request
)

// conflictSize is the server's description when it ends a request that is too small for the next message.
const conflictSize = "message size exceeds maxbytes"

// fatal returns an error if why, the description of a conflict, means that every further request would fail.
func fatal(why string) error {
	switch low := strings.ToLower(why); {
	case strings.Contains(low, conflictGone):
		return ErrGone
	case strings.Contains(low, conflictBounds), strings.Contains(low, conflictPush):
		return fmt.Errorf("the consumer refuses the pull: %s", why)
	}
	return nil
}

// unused returns the number of messages or bytes that an ended request did not deliver, from the given header of raw. It returns 0
// without a valid header.
func unused(raw *nats.Msg, header string) int {
	n, err := strconv.Atoi(raw.Header.Get(header))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
