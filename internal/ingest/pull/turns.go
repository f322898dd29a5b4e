package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server pins one client of a priority group. A request without a pin waits until no client is pinned. The server then pins
// the client that sent the request. All responses to that request have the same pin. Later requests carry the pin and reuse the
// inbox of that first request. A turn of this client lasts from getting a pin until losing it. A client without a pin makes one
// request at a time, each on its own inbox. Each turn therefore has its own inbox, and the inbox of a message identifies its turn.
//
// The server also adds the pin to each message's header (Nats-Pin-Id). This client ignores that header. A publisher can set it
// too, or hide the server's header line with a malformed header.

// turns tracks this client's turns in a consumer's priority group, and the pin of the current turn.
type turns struct {
	nc      *nats.Conn
	r       Request
	inboxes *inboxes

	turn   uint64 // inbox number of this client's latest turn; 0 before the first
	unused bool   // whether the inbox of the last request without a pin received no message and can be reused

	mu  sync.Mutex
	pin string // empty without a turn
}

// errPinUnknown means that the server may have pinned another client before it responded.
var errPinUnknown = errors.New("the server took so long that another client may be pinned by now")

// infoTimeout is the time limit for one query of the consumer's info.
const infoTimeout = 2 * time.Second

// to returns the inbox for a request that carries pin, which may be empty.
func (t *turns) to(pin string) (*inbox, error) {
	last := t.inboxes.last()
	if t.r.Group == "" {
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
	if t.r.Group == "" {
		return 0
	}
	if on := t.inboxes.of(raw); on != nil {
		return on.number
	}
	return 0
}

// begin makes turn the current turn after its first message has arrived. It queries the server for the turn's pin.
func (t *turns) begin(ctx context.Context, turn uint64) error {
	pin, err := t.askPin(ctx, turn)
	if err != nil {
		return fmt.Errorf("query the pin of consumer %q: %w", t.r.Consumer, err)
	}
	t.turn, t.unused = turn, false
	t.setPin(pin)
	return nil
}

// claim returns the pin of turn, and makes turn the current turn.
func (t *turns) claim(ctx context.Context, turn uint64) (string, error) {
	if pin := t.held(); pin != "" && turn == t.turn {
		return pin, nil
	}
	if err := t.begin(ctx, turn); err != nil {
		return "", err
	}
	return t.held(), nil
}

// askPin queries the server for the pin of the pinned client. The server can't pin another client within the lifetime of an unused
// pin. The pin therefore belongs to turn if the response arrives within that time after the turn's first request. Otherwise askPin
// fails with errPinUnknown.
func (t *turns) askPin(ctx context.Context, turn uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	answer, err := t.nc.RequestWithContext(ctx, t.r.API.Subject("CONSUMER.INFO."+t.r.Stream+"."+t.r.Consumer), nil)
	if err != nil {
		return "", err
	}
	var info struct {
		jetstream.ConsumerInfo
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return "", err
	}
	if info.Error != nil {
		return "", info.Error
	}
	for _, b := range t.inboxes.list {
		if b.number != turn || time.Since(b.fresh) >= info.Config.PinnedTTL {
			continue
		}
		for _, g := range info.PriorityGroups {
			if g.Group == t.r.Group && g.PinnedClientID != "" {
				return g.PinnedClientID, nil
			}
		}
	}
	return "", errPinUnknown
}

// The bytes that the server adds to a message's header for the pin, after it has counted the message.
const (
	pinLine   = len("Nats-Pin-Id: \r\n")
	newHeader = len("NATS/1.0\r\n\r\n")
)

// added returns the number of bytes that the server added to raw for the pin but didn't count. If a message was stored without
// headers, the server adds a whole header. A message with an empty stored header can't be told apart, so added overcounts it by
// newHeader bytes.
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

// lose clears the pin if turn is the current turn.
func (t *turns) lose(turn uint64) {
	if turn == t.turn {
		t.setPin("")
	}
}

// held returns the pin of the current turn, or an empty string without a turn.
func (t *turns) held() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pin
}

// isUnclaimed reports whether this client is in a priority group without a pin. Then only one request may be pending at the server.
func (t *turns) isUnclaimed() bool { return t.r.Group != "" && t.held() == "" }

// unspent records that a request on inbox on ended without delivering a message.
func (t *turns) unspent(on *inbox) {
	if on.number > t.turn {
		t.unused = true
	}
}

// unsent records that a request with pin was not sent. If pin is empty, the request's inbox can be reused.
func (t *turns) unsent(pin string) { t.unused = t.unused || pin == "" }
