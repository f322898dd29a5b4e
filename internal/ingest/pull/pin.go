package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A consumer with a pinned priority group serves only requests that name the pin of its one client. A request without
// a pin waits until nobody is pinned. When the server serves it, it pins the client, and the request stays under that
// pin. So all messages of one request arrive under one pin. A client without a pin makes one request at a time, each
// on its own inbox, and requests under the resulting pin use the same inbox. So the inbox of a message identifies the
// turn of this client in which the server sent it.
//
// The server also adds the pin to the header of every message (Nats-Pin-Id). The client ignores it, because a
// publisher can send that header too, and can hide the server's line with a malformed header block.

// inbox receives the answers to requests. In a priority group it belongs to one turn of this client, or to an attempt
// to get a turn.
type inbox struct {
	number uint64 // 1 for the first
	prefix string // of its subjects; a request's number follows
	sub    *nats.Subscription
	fresh  time.Time // when the request without a pin was made
}

// inboxesMost is the maximum number of inboxes of a pull. A message that arrives late on an older one is delivered
// again.
const inboxesMost = 4

// errPinUnknown means that the server may have pinned another client before the query.
var errPinUnknown = errors.New("the server took so long that another client may be pinned by now")

// infoTimeout bounds one query for consumer info.
const infoTimeout = 2 * time.Second

// open opens another inbox.
func (p *Pull) open() (*inbox, error) {
	b := &inbox{number: p.opened + 1, prefix: p.nc.NewInbox() + "."}
	p.subs.Add(1)
	var err error
	if b.sub, err = p.nc.ChanSubscribe(b.prefix+"*", p.in); err != nil {
		p.subs.Add(-1)
		return nil, fmt.Errorf("pull from consumer %q: %w", p.r.Consumer, err)
	}
	b.sub.SetClosedHandler(func(string) {
		if p.subs.Add(-1) == 0 {
			p.end.Do(func() { close(p.ended) })
		}
	})
	p.opened = b.number
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving.Load() { // Stop or Drain hasn't seen this inbox
		_ = b.sub.Unsubscribe()
	}
	p.inboxes = append(p.inboxes, b)
	if len(p.inboxes) > inboxesMost {
		_ = p.inboxes[0].sub.Unsubscribe() // it fails only on a closed connection, which is detected elsewhere
		p.inboxes = append(p.inboxes[:0], p.inboxes[1:]...)
	}
	return b, nil
}

// to returns the inbox for the next request, which names that pin.
func (p *Pull) to(pin string) (*inbox, error) {
	last := p.inboxes[len(p.inboxes)-1]
	if p.r.Group == "" {
		return last, nil
	}
	if pin != "" {
		for _, b := range p.inboxes {
			if b.number == p.turn {
				return b, nil
			}
		}
	}
	if !p.unused {
		var err error
		if last, err = p.open(); err != nil {
			return nil, err
		}
	}
	p.unused = false
	last.fresh = time.Now()
	return last, nil
}

// of returns the inbox on which raw arrived; nil if that inbox no longer exists.
func (p *Pull) of(raw *nats.Msg) *inbox {
	for i := len(p.inboxes) - 1; i >= 0; i-- {
		if p.inboxes[i].sub == raw.Sub {
			return p.inboxes[i]
		}
	}
	return nil
}

// answered returns the number of the request that a status message answers, and its inbox. ok is false if it answers
// none.
func (p *Pull) answered(raw *nats.Msg) (number uint64, on *inbox, ok bool) {
	if on = p.of(raw); on == nil {
		return 0, nil, false
	}
	text, ok := strings.CutPrefix(raw.Subject, on.prefix)
	if !ok {
		return 0, nil, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, on, err == nil
}

// turnOf returns the turn in which raw arrived. It is 0 for a consumer without turns, and for an inbox that no longer
// exists.
func (p *Pull) turnOf(raw *nats.Msg) uint64 {
	if p.r.Group == "" {
		return 0
	}
	if on := p.of(raw); on != nil {
		return on.number
	}
	return 0
}

// begin queries the server for the pin of a turn whose first message has arrived.
func (p *Pull) begin(ctx context.Context, turn uint64) error {
	pin, err := p.askPin(ctx, turn)
	if err != nil {
		return fmt.Errorf("query the pin of consumer %q: %w", p.r.Consumer, err)
	}
	p.turn, p.unused = turn, false
	p.setPin(pin)
	return nil
}

// Claim returns the pin of the turn in which m arrived, and makes Pin return it too. It is for a client that stops
// without having taken m with Next.
func (p *Pull) Claim(ctx context.Context, m *Message) (string, error) {
	if pin := p.Pin(); pin != "" && m.turn == p.turn {
		return pin, nil
	}
	if err := p.begin(ctx, m.turn); err != nil {
		return "", err
	}
	return p.Pin(), nil
}

// askPin queries the server for the pinned client. It is this client in its turn if the answer arrives within the
// lifetime of an unused pin, counted from the first request of the turn. The server can't have pinned another client
// sooner.
func (p *Pull) askPin(ctx context.Context, turn uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	answer, err := p.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.INFO."+p.r.Stream+"."+p.r.Consumer, nil)
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
	for _, b := range p.inboxes {
		if b.number != turn || time.Since(b.fresh) >= info.Config.PinnedTTL {
			continue
		}
		for _, g := range info.Groups {
			if g.Group == p.r.Group && g.Pin != "" {
				return g.Pin, nil
			}
		}
	}
	return "", errPinUnknown
}

// Bytes that the server adds to a message's header for its pin, after it has counted the message.
const (
	pinLine   = len("Nats-Pin-Id: \r\n")
	newHeader = len("NATS/1.0\r\n\r\n")
)

// added returns how many bytes of a message the server didn't count, which are the bytes of the pin. The server gave
// a header to a message that was stored without one. (A message that was stored with an empty header looks the same,
// and then newHeader bytes too few are counted.)
func (p *Pull) added(raw *nats.Msg) int {
	added := pinLine + len(p.pin)
	if header := raw.Size() - len(raw.Subject) - len(raw.Reply) - len(raw.Data); header == added+newHeader {
		added = header
	}
	return added
}

func (p *Pull) setPin(pin string) {
	p.mu.Lock()
	p.pin = pin
	p.mu.Unlock()
}

// lose forgets the pin if it belongs to that turn.
func (p *Pull) lose(turn uint64) {
	if turn == p.turn {
		p.setPin("")
	}
}

// Pin returns the server's id for this client's turn in a priority group; empty without a turn.
func (p *Pull) Pin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pin
}
