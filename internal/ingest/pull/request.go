package pull

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Request says what to ask a consumer for.
type Request struct {
	Stream, Consumer string

	Group     string        // the priority group of a consumer that has one; empty otherwise
	Messages  int           // most messages of one request
	Bytes     int           // most bytes of one request, as the server counts them: at least the largest message's
	Limit     *Limit        // says anew for each request what Bytes would; nil: Bytes holds
	Expires   time.Duration // how long one request lasts
	Heartbeat time.Duration // how often the server says that it is there; at most half of Expires
	Idle      time.Duration // after how long without a message Next says so; 0: never
}

// spareWords is how many words of the server may wait beside a request's messages.
const spareWords = 16

// subject is where a consumer is asked.
func (r Request) subject() string { return "$JS.API.CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer }

// bytes is what a request asks for now.
func (r Request) bytes() int {
	if r.Limit != nil {
		return r.Limit.Bytes()
	}
	return r.Bytes
}

// tooSmall enters the server's refusal of a request of asked bytes. It fails where asking for more is of no use.
func (r Request) tooSmall(raw *nats.Msg, asked int) error {
	if r.Limit == nil || !strings.EqualFold(raw.Header.Get("Description"), conflictSize) || unused(raw, bytesHeader) < asked {
		return nil // it is over for another reason, or after it has brought something
	}
	return r.Limit.refused(asked)
}

// wire is a request as the server reads it.
type wire struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	Group     string        `json:"group,omitempty"`
	Pin       string        `json:"id,omitempty"`
}

// send sends w to subject. The answers go to reply.
func (w wire) send(nc *nats.Conn, subject, reply string) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = nc.PublishRequest(subject, reply, text)
	}
	if err != nil {
		return fmt.Errorf("ask the consumer for messages: %w", err)
	}
	return nil
}
