package pull

import (
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/capacity"
)

// outstanding is how many requests are with the server at once, so that it has another while the end of one is on its way.
// So what is on its way and waits here is bounded by twice what one request asks for.
const outstanding = capacity.Requests

// ask is a request that the server has.
type ask struct {
	number   uint64 // 0: there is none
	messages int    // what it asked for
	bytes    int
	until    time.Time // when it is over at the latest, said or not
}

// requests are the requests of one pull that the server has. They are for the goroutine that calls Next.
type requests struct {
	nc      *nats.Conn
	r       Request
	subject string // where requests go
	turns   *turns

	live  [outstanding]ask
	asked uint64 // their number so far
	left  int    // messages that they may still bring
	room  int    // bytes that they may still bring, as the server counts
	renew bool   // forget them once everything that came is taken
}

// refill has the server have as many requests as it is to have. What they brought may be on its way still, since a server with
// replicas says the end of a request before it sends what waits for the others: so that counts too.
func (q *requests) refill() error {
	if q.left <= 0 || q.room <= 0 {
		// They have brought all they were to. Of one whose bytes come out even the server says nothing.
		q.forget()
	}
	none := q.live == [outstanding]ask{}
	alone := q.turns.alone()
	for i := range q.live {
		if q.live[i].number != 0 || alone && !none {
			continue
		}
		// The limit may have grown. A request that waits with a smaller one needs no renewal: the server ends it as soon
		// as there is a message that it doesn't fit.
		messages, full := q.r.Messages, q.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server serves requests in turns. The first of two is a half one, so that they do not end together.
			messages, bytes = (messages+1)/2, (bytes+1)/2
		}
		if q.left+messages > outstanding*q.r.Messages || q.room+bytes > outstanding*full {
			return nil
		}
		switch err := q.send(i, messages, bytes); {
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			return nil // there is no connection; it is asked for again when there is
		case err != nil:
			return err
		}
		if alone {
			return nil
		}
	}
	return nil
}

// send makes a request for so many messages and bytes.
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

// over notes the end of a request that could have brought so many messages and bytes more.
func (q *requests) over(number uint64, messages, bytes int) {
	for i := range q.live {
		if q.live[i].number == number {
			q.live[i] = ask{}
			q.left -= messages
			q.room -= bytes
		}
	}
}

// came notes a message, which belongs to any of the requests.
func (q *requests) came(raw *nats.Msg) {
	q.left--
	q.room -= raw.Size()
	if q.r.Group != "" {
		q.room += q.turns.added(raw)
	}
}

// of is what a request asked for that the server has; the zero value where it is over.
func (q *requests) of(number uint64) ask {
	for _, a := range q.live {
		if a.number == number {
			return a
		}
	}
	return ask{}
}

// expire takes the requests for over when the server should have told the end of one long since.
func (q *requests) expire(now time.Time) {
	for _, a := range q.live {
		if a.number != 0 && now.After(a.until) {
			q.forget()
			return
		}
	}
}

// forget takes all requests for over.
func (q *requests) forget() {
	q.live, q.left, q.room, q.renew = [outstanding]ask{}, 0, 0, false
}
