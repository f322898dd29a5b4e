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

// hear enters a word of the server. It is an error where the pull cannot go on.
func (p *Pull) hear(raw *nats.Msg) error {
	number, on, ours := p.answered(raw)
	if !ours {
		return nil // the answer to Keep, or nothing of the server's
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

// refused enters the end of a request before its time. Where the server does not say what is left of it, it may have none of
// the requests: the consumer is another server's now, or another client's.
func (p *Pull) refused(number uint64, raw *nats.Msg) {
	if _, said := raw.Header[pendingHeader]; !said {
		p.renew = true
	}
	p.over(number, unused(raw, pendingHeader), unused(raw, bytesHeader))
}

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
