package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
)

// A consumer with a pinned priority group serves only requests with the pin of its single client. A request without a pin waits
// until no client is pinned. When the server serves such a request, it pins the client, and the request keeps that pin. So all
// messages of one request arrive under one pin. A client without a pin makes one request at a time, each on its own inbox.
// Requests under the resulting pin use the same inbox. So a message's inbox identifies the turn of this client in which the
// server sent the message.
//
// The server also adds the pin to the header of every message (Nats-Pin-Id). This client ignores that header, because a publisher
// can send it too, and can hide the server's line with a malformed header block.

// turns tracks this client's turns in the priority group of a consumer, and the server's id for the current turn.
type turns struct {
	nc                      *nats.Conn
	api                     jsapi.API
	stream, consumer, group string
	inboxes                 *inboxes

	turn   uint64 // inbox number of this client's turn; 0 before the first
	unused bool   // whether the inbox of the last request without a pin received no message and can be reused

	mu  sync.Mutex
	pin string // the server's id for this client's turn
}

// errPinUnknown means that the server may have pinned another client before it responded.
var errPinUnknown = errors.New("the server took so long that another client may be pinned by now")

// infoTimeout is the time limit for one query of the consumer's state.
const infoTimeout = 2 * time.Second

// to returns the inbox for the next request. pin is the pin in the request, or empty.
func (t *turns) to(pin string) (*inbox, error) {
	last := t.inboxes.last()
	if t.group == "" {
		return last, nil
	}
	if pin != "" {
		if b := t.inboxes.numbered(t.turn); b != nil {
			return b, nil
		}
	}
	if !t.unused {
		var err error
		if last, err = t.inboxes.open(); err != nil {
			return nil, err
		}
	}
	t.unused = false
	last.fresh = time.Now()
	return last, nil
}

// turnOf returns the turn in which raw arrived. It is 0 for a consumer without a priority group, and for an inbox that no longer
// exists.
func (t *turns) turnOf(raw *nats.Msg) uint64 {
	if t.group == "" {
		return 0
	}
	if on := t.inboxes.of(raw); on != nil {
		return on.number
	}
	return 0
}

// begin queries the server for the pin of a turn whose first message has arrived.
func (t *turns) begin(ctx context.Context, turn uint64) error {
	pin, err := t.askPin(ctx, turn)
	if err != nil {
		return fmt.Errorf("query the pin of consumer %q: %w", t.consumer, err)
	}
	t.turn, t.unused = turn, false
	t.setPin(pin)
	return nil
}

// claim returns the pin of that turn, and makes it the current turn.
func (t *turns) claim(ctx context.Context, turn uint64) (string, error) {
	if pin := t.held(); pin != "" && turn == t.turn {
		return pin, nil
	}
	if err := t.begin(ctx, turn); err != nil {
		return "", err
	}
	return t.held(), nil
}

// askPin queries the server for the pin of the pinned client. If the response arrives soon enough after the first request of the
// turn, the pin belongs to that turn. The time limit is the lifetime of an unused pin, because the server can't pin another
// client sooner.
func (t *turns) askPin(ctx context.Context, turn uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	answer, err := t.nc.RequestWithContext(ctx, t.api.Subject("CONSUMER.INFO."+t.stream+"."+t.consumer), nil)
	if err != nil {
		return "", err
	}
	var info struct {
		Config struct {
			PinnedTTL time.Duration `json:"priority_timeout"`
		} `json:"config"`
		Groups []struct {
			Group string `json:"group"`
			Pin   string `json:"pinned_client_id"`
		} `json:"priority_groups"`
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return "", err
	}
	if info.Error != nil {
		return "", errors.New(info.Error.Description)
	}
	for _, b := range t.inboxes.list {
		if b.number != turn || time.Since(b.fresh) >= info.Config.PinnedTTL {
			continue
		}
		for _, g := range info.Groups {
			if g.Group == t.group && g.Pin != "" {
				return g.Pin, nil
			}
		}
	}
	return "", errPinUnknown
}

// The numbers of bytes that the server adds to a message's header for the pin, after it has counted the message.
const (
	pinLine   = len("Nats-Pin-Id: \r\n")
	newHeader = len("NATS/1.0\r\n\r\n")
)

// added returns the number of bytes that the server added to a message for the pin and didn't count. The server adds a whole
// header to a message that was stored without a header. A message that was stored with an empty header looks the same, so its
// newHeader bytes are wrongly included.
func (t *turns) added(raw *nats.Msg) int {
	added := pinLine + len(t.pin)
	if header := raw.Size() - len(raw.Subject) - len(raw.Reply) - len(raw.Data); header == added+newHeader {
		added = header
	}
	return added
}

func (t *turns) setPin(pin string) {
	t.mu.Lock()
	t.pin = pin
	t.mu.Unlock()
}

// lose clears the pin if it belongs to that turn.
func (t *turns) lose(turn uint64) {
	if turn == t.turn {
		t.setPin("")
	}
}

// held returns the pin of the current turn. It is empty if this client has no turn.
func (t *turns) held() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pin
}

// alone reports whether only one request may be pending at the server. That is the case if this client is in a priority group
// without a pin.
func (t *turns) alone() bool { return t.group != "" && t.held() == "" }

// unspent records that a request on that inbox ended without delivering a message.
func (t *turns) unspent(on *inbox) {
	if on.number > t.turn {
		t.unused = true
	}
}

// unsent records that a request with that pin was not sent. Without a pin, no message can then arrive on the request's inbox.
func (t *turns) unsent(pin string) { t.unused = t.unused || pin == "" }
