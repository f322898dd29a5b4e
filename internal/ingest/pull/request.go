package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/memory"
)

// Request has the parameters of the requests to a consumer.
type Request struct {
	API              jsapi.API // JetStream API of the stream
	Stream, Consumer string

	Group     string        // the consumer's priority group; empty if it has none
	Messages  int           // maximum number of messages per request
	Bytes     int           // maximum bytes per request, as the server counts; must fit the largest message
	Limit     *Limit        // replaces Bytes if not nil
	Expires   time.Duration // duration of one request
	Heartbeat time.Duration // interval between heartbeats of the server; at most half of Expires
	Idle      time.Duration // time without a message after which Next returns ErrIdle; 0 means no limit
}

// spareWords is the channel capacity for a request's status messages.
const spareWords = 16

func (r Request) subject() string {
	return r.API.Subject("CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer)
}

func (r Request) bytes() int {
	if r.Limit != nil {
		return r.Limit.Bytes()
	}
	return r.Bytes
}

// tooSmall handles the end of a request of asked bytes with status message raw. If the server refused it as too small, r.Limit
// grows. tooSmall returns an error if a larger request isn't allowed.
func (r Request) tooSmall(raw *nats.Msg, asked int) error {
	if r.Limit == nil || !strings.EqualFold(raw.Header.Get("Description"), conflictSize) || unused(raw, bytesHeader) < asked {
		return nil // it ended for another reason, or delivered a message
	}
	return r.Limit.refused(asked)
}

// wire is the JSON form of a request.
type wire struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	Group     string        `json:"group,omitempty"`
	Pin       string        `json:"id,omitempty"`
}

func (w wire) send(nc *nats.Conn, subject, reply string) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = nc.PublishRequest(subject, reply, text)
	}
	if err != nil {
		return fmt.Errorf("request messages from the consumer: %w", err)
	}
	return nil
}

// outstanding is the number of requests that are pending at the server. Their total size bounds the messages in transit and in the
// client.
const outstanding = memory.PendingRequests

// ask is one pending request.
type ask struct {
	number   uint64 // 0 means no request
	messages int
	bytes    int
	until    time.Time // the request has ended by then, even if its end isn't reported
}

// requests tracks one pull's requests that are pending at the server. Only the goroutine that calls Next may use it.
type requests struct {
	nc      *nats.Conn
	r       Request
	subject string // subject for requests
	turns   *turns

	live  [outstanding]ask
	asked uint64 // number of requests made so far
	left  int    // number of messages that pending requests may still deliver
	room  int    // number of bytes, as the server counts, that they may still deliver
	renew bool   // whether to forget all requests once all waiting messages are taken
}

// refill sends requests until the intended number is pending at the server. It counts the messages of ended requests until they
// arrive, because a server with replicas may send them after the end of their request.
func (q *requests) refill() error {
	if q.left <= 0 || q.room <= 0 {
		// The server doesn't report the end of a request if its messages use up its bytes exactly.
		q.forget()
	}
	none := q.live == [outstanding]ask{}
	alone := q.turns.isUnclaimed()
	for i := range q.live {
		if q.live[i].number != 0 || alone && !none {
			continue
		}
		// The byte limit may have grown. The server ends a pending request with a smaller limit when a message doesn't fit.
		messages, full := q.r.Messages, q.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server alternates between requests. The first of two gets half the size, or both would end at the same time.
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

// send sends a request for the given messages and bytes, and stores it in live[i].
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

// over records the end of request number, and returns the request, or the zero value if it has already ended. messages and bytes
// are the amounts that it did not deliver.
func (q *requests) over(number uint64, messages, bytes int) (ended ask) {
	for i := range q.live {
		if q.live[i].number == number {
			ended, q.live[i] = q.live[i], ask{}
			q.left -= messages
			q.room -= bytes
		}
	}
	return ended
}

// came records the arrival of message raw for any of the requests.
func (q *requests) came(raw *nats.Msg) {
	q.left--
	q.room -= raw.Size()
	if q.r.Group != "" {
		q.room += q.turns.added(raw)
	}
}

// expire forgets all requests if one is past its time until.
func (q *requests) expire(now time.Time) {
	for _, a := range q.live {
		if a.number != 0 && now.After(a.until) {
			q.forget()
			return
		}
	}
}

// forget removes all requests.
func (q *requests) forget() {
	q.live, q.left, q.room, q.renew = [outstanding]ask{}, 0, 0, false
}
