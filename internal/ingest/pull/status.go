package pull

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The server's own words, as they come in the first line of a header.
const (
	wordHeartbeat  = "100"
	wordBad        = "400" // the request cannot be read or does not suit the consumer
	wordNone       = "404" // no messages, and the request does not wait for any
	wordExpired    = "408" // the request's time is over
	wordConflict   = "409" // the request is over, for the reason that follows
	wordRequired   = "412"
	wordPinned     = "423" // another client has the turn
	wordNobody     = "503" // nobody answers for the consumer
	pendingHeader  = "Nats-Pending-Messages"
	bytesHeader    = "Nats-Pending-Bytes"
	conflictGone   = "consumer deleted"
	conflictDone   = "batch completed" // as many messages as were asked for have been sent, or are about to be
	conflictPush   = "consumer is push based"
	conflictBounds = "exceeded maxrequest" // the consumer's own bounds of a request
)

// conflictSize is the server's reason for ending a request that its next message does not fit.
const conflictSize = "message size exceeds maxbytes"

// fatal is the error of a conflict that no further request would overcome.
func fatal(why string) error {
	switch low := strings.ToLower(why); {
	case strings.Contains(low, conflictGone):
		return ErrGone
	case strings.Contains(low, conflictBounds), strings.Contains(low, conflictPush):
		return fmt.Errorf("the consumer refuses the pull: %s", why)
	}
	return nil
}

// unused is how much more a request that is over could have brought, by that header.
func unused(raw *nats.Msg, header string) int {
	n, err := strconv.Atoi(raw.Header.Get(header))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
