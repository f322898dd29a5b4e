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

// A consumer whose priority group pins one client serves the requests of that client alone: those that name its pin. A
// request without a pin waits until nobody is pinned; when the server serves it, the client is pinned anew, and the request
// stays under that pin. So all messages of one request come under one pin. A client without a pin makes one request at a
// time, each on an inbox of its own, and the requests under the pin that follows go to the same inbox: the inbox on which a
// message comes tells in which turn of this client the server sent it.
//
// The server also adds the pin to the header of every message (Nats-Pin-Id). It isn't read: a publisher can send that header
// too, and with a malformed header block hide what the server puts behind it.

// inbox is where the answers to requests come. In a priority group it stands for one turn of this client, or for the
// attempt to get one.
type inbox struct {
	number uint64 // 1 for the first
	prefix string // of the subjects; a request's number follows
	sub    *nats.Subscription
	fresh  time.Time // when the request without a pin was made
}

// inboxesMost is how many inboxes a pull has at once. What comes late on an older one is delivered again.
const inboxesMost = 4

// errPinUnknown says that the server may have pinned another client before it was asked.
var errPinUnknown = errors.New("the server took so long that another client may be pinned by now")

// infoTimeout bounds one question to the server about the consumer.
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
	if p.leaving.Load() { // Stop or Drain has not seen it
		_ = b.sub.Unsubscribe()
	}
	p.inboxes = append(p.inboxes, b)
	if len(p.inboxes) > inboxesMost {
		_ = p.inboxes[0].sub.Unsubscribe() // the connection is closed otherwise, and its end is noticed elsewhere
		p.inboxes = append(p.inboxes[:0], p.inboxes[1:]...)
	}
	return b, nil
}

// to is the inbox for the next request, which names that pin.
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

// of is the inbox on which raw came; nil for one that is no more.
func (p *Pull) of(raw *nats.Msg) *inbox {
	for i := len(p.inboxes) - 1; i >= 0; i-- {
		if p.inboxes[i].sub == raw.Sub {
			return p.inboxes[i]
		}
	}
	return nil
}

// answered reads which request a status message answers, and on which inbox; ok is false where it answers none.
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

// turnOf is the turn in which raw came; 0 for a consumer without turns, and on an inbox that is no more.
func (p *Pull) turnOf(raw *nats.Msg) uint64 {
	if p.r.Group == "" {
		return 0
	}
	if on := p.of(raw); on != nil {
		return on.number
	}
	return 0
}

// begin asks the server for the pin of a turn of which the first message has come.
func (p *Pull) begin(ctx context.Context, turn uint64) error {
	pin, err := p.askPin(ctx, turn)
	if err != nil {
		return fmt.Errorf("learn whom consumer %q is pinned to: %w", p.r.Consumer, err)
	}
	p.turn, p.unused = turn, false
	p.setPin(pin)
	return nil
}

// Claim returns the pin of the turn in which m came, and Pin does so from then on. It is for a client that leaves without
// having taken m with Next.
func (p *Pull) Claim(ctx context.Context, m *Message) (string, error) {
	if pin := p.Pin(); pin != "" && m.turn == p.turn {
		return pin, nil
	}
	if err := p.begin(ctx, m.turn); err != nil {
		return "", err
	}
	return p.Pin(), nil
}

// askPin asks the server whom the consumer is pinned to. That is this client in its turn, if the answer comes within the
// time that a pin lasts unused, counted from the request that the turn began with: the server can't have pinned another
// client after this one sooner.
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

// What the server adds to the header of a message for its pin, after it has counted the message's bytes.
const (
	pinLine   = len("Nats-Pin-Id: \r\n")
	newHeader = len("NATS/1.0\r\n\r\n")
)

// added is how many bytes of a message the server did not count: those of the pin. A message that was stored without a header
// got one. (One that was stored with an empty header looks the same: of such a message newHeader is counted too few.)
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

// lose forgets the pin, where it is that of the turn.
func (p *Pull) lose(turn uint64) {
	if turn == p.turn {
		p.setPin("")
	}
}

// Pin is the server's name for this client's turn in a priority group; empty while it has none.
func (p *Pull) Pin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pin
}
