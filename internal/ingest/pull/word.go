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
	wordPinned     = "423" // another client has the turn
	wordNobody     = "503" // no server answers for the consumer
	pendingHeader  = "Nats-Pending-Messages"
	bytesHeader    = "Nats-Pending-Bytes"
	conflictGone   = "consumer deleted"
	conflictDone   = "batch completed" // all requested messages have been sent, or are about to be
	conflictPush   = "consumer is push based"
	conflictBounds = "exceeded maxrequest" // the consumer's own limits for a request
)

// hear handles a status message. It fails if the pull can't continue.
func (p *Pull) hear(raw *nats.Msg) error {
	number, on, ours := p.answered(raw)
	if !ours {
		return nil // the answer to Keep, or not a status message
	}
	why := raw.Header.Get("Description")
	switch code := raw.Header.Get("Status"); code {
	case wordHeartbeat:
		return nil
	case wordExpired, wordNone:
		if asked := p.request(number); on.number > p.turn && unused(raw, pendingHeader) == asked.messages {
			p.unused = true
		}
		p.over(number, unused(raw, pendingHeader), unused(raw, bytesHeader))
	case wordPinned:
		p.lose(on.number)
		p.refused(number, raw)
	case wordConflict:
		if err := fatal(why); err != nil {
			return err
		}
		if asked := p.request(number).bytes; asked > 0 {
			if err := p.r.tooSmall(raw, asked); err != nil {
				return err
			}
		}
		p.refused(number, raw)
	case wordBad, wordRequired:
		return fmt.Errorf("the server refuses the pull: %s", why)
	case wordNobody:
		return fmt.Errorf("%w for the consumer", nats.ErrNoResponders)
	}
	return nil
}

// refused handles the early end of a request. If the server doesn't report the remaining count, it may have none of
// the requests, because another server or another client now has the consumer.
func (p *Pull) refused(number uint64, raw *nats.Msg) {
	if _, said := raw.Header[pendingHeader]; !said {
		p.renew = true
	}
	p.over(number, unused(raw, pendingHeader), unused(raw, bytesHeader))
}

// fatal returns the error for a conflict that no further request would resolve.
func fatal(why string) error {
	switch low := strings.ToLower(why); {
	case strings.Contains(low, conflictGone):
		return ErrGone
	case strings.Contains(low, conflictBounds), strings.Contains(low, conflictPush):
		return fmt.Errorf("the consumer refuses the pull: %s", why)
	}
	return nil
}

// unused returns how much more an ended request could have delivered, according to that header.
func unused(raw *nats.Msg, header string) int {
	n, err := strconv.Atoi(raw.Header.Get(header))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
