package pull

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
)

// Request describes what to request from a consumer.
type Request struct {
	API              jsapi.API // of the stream
	Stream, Consumer string

	Group     string        // the consumer's priority group; empty if it has none
	Messages  int           // maximum number of messages per request
	Bytes     int           // maximum bytes per request, as the server counts them; at least the largest message
	Limit     *Limit        // byte limit for each request; nil: Bytes applies
	Expires   time.Duration // how long one request lasts
	Heartbeat time.Duration // interval between heartbeats of the server; at most half of Expires
	Idle      time.Duration // Next returns ErrIdle after this time without a message; 0: never
}

// spareWords is the channel space for status messages in addition to a request's messages.
const spareWords = 16

// subject returns the subject for requests to a consumer.
func (r Request) subject() string {
	return r.API.Subject("CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer)
}

// bytes returns the byte limit for the next request.
func (r Request) bytes() int {
	if r.Limit != nil {
		return r.Limit.Bytes()
	}
	return r.Bytes
}

// tooSmall handles a refusal of a request of asked bytes. It fails if a larger request wouldn't help.
func (r Request) tooSmall(raw *nats.Msg, asked int) error {
	if r.Limit == nil || !strings.EqualFold(raw.Header.Get("Description"), conflictSize) || unused(raw, bytesHeader) < asked {
		return nil // the request ended for another reason, or after it delivered a message
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

// send publishes w on subject. The answers go to reply.
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
