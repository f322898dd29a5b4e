package pull

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
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
