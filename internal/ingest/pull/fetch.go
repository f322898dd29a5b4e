package pull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// answerWithin is the time limit for the server's responses to a request, in addition to the request's own wait.
const answerWithin = 2 * time.Second

// Fetch requests up to n messages, waits at most wait for them, and passes each to take. With wait 0, the server sends only
// available messages. came is the number of messages that arrived. Fetch always waits for the end of the request, because messages
// in transit would be lost to this client until AckWait. It uses only r's API, stream, consumer and byte limit. The request also
// ends at the byte limit.
func Fetch(nc *nats.Conn, r Request, n int, wait time.Duration, take func(*Message)) (came int, err error) {
	in := make(chan *nats.Msg, n+spareWords)
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, in)
	if err != nil {
		return 0, fmt.Errorf("fetch from consumer %q: %w", r.Consumer, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	bytes, asked := r.bytes(), time.Now()
	w := wire{Batch: n, MaxBytes: bytes, Expires: wait, NoWait: wait == 0}
	if err := w.send(nc, r.subject(), inbox); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait+answerWithin)
	defer cancel()
	for came < n {
		select {
		case raw := <-in:
			if raw.Reply == "" {
				if over, err := ending(raw); over || err != nil {
					return came, errors.Join(err, r.tooSmall(raw, bytes))
				}
				continue
			}
			came++
			take(&Message{nc: nc, raw: raw, since: pause.Process().Since(asked, time.Now())})
		case <-ctx.Done():
			if nc.IsClosed() {
				return came, nats.ErrConnectionClosed
			}
			return came, ErrSilent
		}
	}
	return came, nil
}

// ending reports whether the status message raw ends the request. It returns an error if the request failed.
func ending(raw *nats.Msg) (over bool, err error) {
	why := raw.Header.Get("Description")
	switch raw.Header.Get("Status") {
	case wordHeartbeat:
		return false, nil
	case wordConflict:
		return !strings.EqualFold(why, conflictDone), fatal(why)
	case wordBad, wordRequired:
		return true, fmt.Errorf("the server refuses the fetch: %s", why)
	case wordNobody:
		return true, fmt.Errorf("%w for the consumer", nats.ErrNoResponders)
	}
	return true, nil
}
