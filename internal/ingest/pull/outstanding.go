package pull

import (
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/capacity"
)

// outstanding is the number of requests that are pending at the server. Messages in transit and waiting in the client are bounded
// by the size of that many requests.
const outstanding = capacity.Requests

// ask is a request that is pending at the server.
type ask struct {
	number   uint64 // 0 means no request
	messages int
	bytes    int
	until    time.Time // latest time at which the request ends, even if its end isn't reported
}

// requests has the requests of one pull that are pending at the server. Only the goroutine that calls Next may use it.
type requests struct {
	nc      *nats.Conn
	r       Request
	subject string // subject for requests
	turns   *turns

	live  [outstanding]ask
	asked uint64 // number of requests made so far
	left  int    // number of messages that pending requests may still deliver
	room  int    // number of bytes that pending requests may still deliver, as the server counts
	renew bool   // whether all requests end once all waiting messages are taken
}

// refill sends requests until the intended number is pending at the server. It counts messages of ended requests until they
// arrive, because a server with replicas may send messages after it has reported the end of their request.
func (q *requests) refill() error {
	if q.left <= 0 || q.room <= 0 {
		// The requests have delivered everything. The server doesn't report the end of a request whose bytes are used up exactly.
		q.forget()
	}
	none := q.live == [outstanding]ask{}
	alone := q.turns.alone()
	for i := range q.live {
		if q.live[i].number != 0 || alone && !none {
			continue
		}
		// The byte limit may have grown. A pending request with a smaller limit needs no renewal, because the server ends the
		// request when a message doesn't fit.
		messages, full := q.r.Messages, q.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server serves requests in turn. The first of two requests has half the size, so that they don't end at the same
			// time.
			messages, bytes = (messages+1)/2, (bytes+1)/2
		}
		if q.left+messages > outstanding*q.r.Messages || q.room+bytes > outstanding*full {
			return nil
		}
		switch err := q.send(i, messages, bytes); {
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			return nil // there is no connection; refill is called again after a reconnect
		case err != nil:
			return err
		}
		if alone {
			return nil
		}
	}
	return nil
}

// send sends request i for that many messages and bytes.
func (q *requests) send(i, messages, bytes int) error {
	q.asked++
	w := wire{
		Batch: messages, MaxBytes: bytes, Expires: q.r.Expires, Heartbeat: q.r.Heartbeat, Group: q.r.Group, Pin: q.turns.held(),
	}
	to, err := q.turns.to(w.Pin)
	if err != nil {
		return err
	}
	if err := w.send(q.nc, q.subject, to.prefix+strconv.FormatUint(q.asked, 10)); err != nil {
		q.turns.unsent(w.Pin)
		return err
	}
	q.live[i] = ask{number: q.asked, messages: messages, bytes: bytes, until: time.Now().Add(q.r.Expires + q.r.Heartbeat)}
	q.left += messages
	q.room += bytes
	return nil
}

// over records the end of a request. messages and bytes are the parts that the request did not deliver.
func (q *requests) over(number uint64, messages, bytes int) {
	for i := range q.live {
		if q.live[i].number == number {
			q.live[i] = ask{}
			q.left -= messages
			q.room -= bytes
		}
	}
}

// came records the arrival of a message, which may belong to any pending request.
func (q *requests) came(raw *nats.Msg) {
	q.left--
	q.room -= raw.Size()
	if q.r.Group != "" {
		q.room += q.turns.added(raw)
	}
}

// of returns the pending request with that number, or the zero value if it has ended.
func (q *requests) of(number uint64) ask {
	for _, a := range q.live {
		if a.number == number {
			return a
		}
	}
	return ask{}
}

// expire forgets all requests if the server has not reported the end of one in time.
func (q *requests) expire(now time.Time) {
	for _, a := range q.live {
		if a.number != 0 && now.After(a.until) {
			q.forget()
			return
		}
	}
}

// forget removes all requests, as if they had ended.
func (q *requests) forget() {
	q.live, q.left, q.room, q.renew = [outstanding]ask{}, 0, 0, false
}
