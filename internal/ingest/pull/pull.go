// Package pull receives messages from a JetStream pull consumer, exactly as the server sends them.
//
// The client library recognizes a status message of the server (a heartbeat, the end of a request, the end of the
// consumer) by its content: no payload, and a header Status. But a producer may send such a message too, and the
// library would then deliver the input to nobody, or end the pull. This package uses a difference that no producer
// can influence. A message of a consumer has a reply subject for its acknowledgement, and a status message has none.
package pull

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Errors that end a pull, besides those of the context and of the connection (nats.ErrConnectionClosed).
var (
	// ErrSilent means that the server has sent nothing for more than two heartbeats, although a request is pending.
	ErrSilent = errors.New("the server is silent: no heartbeat for the pull")

	// ErrEnded means that the pull was drained or stopped, and that no messages are left.
	ErrEnded = errors.New("the pull has ended")

	// ErrGone means that the consumer was deleted.
	ErrGone = errors.New("the consumer was deleted")

	// ErrIdle means that no message has arrived for Request.Idle. The pull continues.
	ErrIdle = errors.New("no message has come for a while")
)

// Request says what to request from a consumer.
type Request struct {
	Stream, Consumer string

	Group     string        // the priority group of a consumer that has one; empty otherwise
	Messages  int           // maximum number of messages per request
	Bytes     int           // maximum bytes per request, as the server counts them: at least the largest message's
	Limit     *Limit        // byte limit for each request; nil: Bytes applies
	Expires   time.Duration // how long one request lasts
	Heartbeat time.Duration // interval between heartbeats of the server; at most half of Expires
	Idle      time.Duration // Next returns ErrIdle after this time without a message; 0: never
}

// outstanding is the number of requests that are pending at the server, so that the server has another request while
// the end of one is in transit. So messages in transit and waiting in the client are bounded by twice the size of a
// request.
const outstanding = 2

// ticksPerBeat is how often silence is measured per heartbeat.
const ticksPerBeat = 2

// Pull is one continuous pull. It requests more as messages are taken. Only one goroutine may call Next. The other
// methods are safe for concurrent use.
type Pull struct {
	nc      *nats.Conn
	r       Request
	subject string // where requests go
	in      chan *nats.Msg
	subs    atomic.Int32     // subscriptions that deliver to in
	ended   chan struct{}    // closed when nothing more arrives on in
	end     sync.Once        // guards the close of ended
	status  chan nats.Status // signals a reconnect
	tick    *time.Ticker
	stop    sync.Once
	leaving atomic.Bool // no further requests

	live  [outstanding]ask // requests that are pending at the server
	asked uint64           // number of requests so far
	left  int              // messages that they may still deliver
	room  int              // bytes that they may still deliver, as the server counts
	renew bool             // forget the live requests once all waiting messages are taken
	mute  int              // ticks without anything from the server
	quiet int              // ticks without a message

	inboxes []*inbox // in order of creation; changed by the caller of Next, with mu held
	opened  uint64   // number of inboxes so far
	turn    uint64   // number of the inbox of this client's turn in a priority group; 0 before the first
	unused  bool     // the last request without a pin ended without delivering anything, so its inbox can be reused

	age age // of the waiting messages

	mu  sync.Mutex
	pin string // the server's id for this client's turn
}

// Open starts a pull. The caller ends it with Stop, or with Drain and by taking the remaining messages. The caller
// must call Stop in any case.
func Open(nc *nats.Conn, r Request) (*Pull, error) {
	p := &Pull{
		nc: nc, r: r, subject: subject(r), unused: true,
		// Twice everything that can be in transit: requests from before a reconnect may have been answered in full.
		in:    make(chan *nats.Msg, 2*outstanding*(r.Messages+spareWords)),
		ended: make(chan struct{}),
	}
	if _, err := p.open(); err != nil {
		return nil, err
	}
	p.status = nc.StatusChanged(nats.CONNECTED)
	p.tick = time.NewTicker(r.Heartbeat / ticksPerBeat)
	p.age.mark(time.Now(), 0)
	return p, nil
}

// spareWords is room for status messages besides a request's messages.
const spareWords = 16

// subject returns the subject for requests to a consumer.
func subject(r Request) string { return "$JS.API.CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer }

// Next returns the next message. It sends requests to the server when there is room.
func (p *Pull) Next(ctx context.Context) (*Message, error) {
	for {
		if err := p.ask(); err != nil {
			return nil, err
		}
		var raw *nats.Msg
		select {
		case raw = <-p.in: // the usual case, in which nothing else needs a check
		default:
			var err error
			if raw, err = p.wait(ctx); err != nil {
				return nil, err
			}
		}
		if raw == nil {
			continue
		}
		since := p.age.took(len(p.in))
		p.mute = 0
		if raw.Reply == "" {
			if err := p.hear(raw); err != nil {
				return nil, err
			}
			continue
		}
		p.quiet = 0
		m := p.message(raw, since)
		if p.r.Group != "" && m.turn == 0 {
			continue // from a turn that ended long ago; the server delivers it again
		}
		if m.turn > p.turn {
			if err := p.begin(ctx, m.turn); err != nil {
				return nil, err
			}
		}
		p.came(raw)
		return m, nil
	}
}

// wait waits for the next message when all waiting messages are taken. It returns neither a message nor an error if
// requests may have to be made again.
func (p *Pull) wait(ctx context.Context) (*nats.Msg, error) {
	if p.renew {
		p.forget()
		return nil, nil
	}
	p.age.mark(time.Now(), len(p.in))
	select {
	case raw := <-p.in:
		return raw, nil
	case <-p.tick.C:
		return nil, p.measure()
	case <-p.status:
		p.renew = true // the server that had the requests may have been replaced
		return nil, nil
	case <-p.ended:
		return p.last()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// last takes a remaining message of a pull that has ended.
func (p *Pull) last() (*nats.Msg, error) {
	select {
	case raw := <-p.in:
		return raw, nil
	default:
	}
	if p.nc.IsClosed() {
		return nil, nats.ErrConnectionClosed
	}
	return nil, ErrEnded
}

// measure counts ticks without messages.
func (p *Pull) measure() error {
	p.expire(time.Now())
	switch {
	case p.nc.IsClosed():
		return nats.ErrConnectionClosed
	case !p.nc.IsConnected():
		p.mute = 0 // without a connection silence is expected, and a reconnect is signalled
	}
	p.mute++
	p.quiet++
	switch tick := p.r.Heartbeat / ticksPerBeat; {
	case p.mute > 2*ticksPerBeat:
		return ErrSilent
	case p.mute > ticksPerBeat:
		p.renew = true // the requests may no longer be pending at the server
	case p.r.Idle > 0 && time.Duration(p.quiet)*tick >= p.r.Idle:
		p.quiet = 0
		return ErrIdle
	}
	return nil
}

// Drain ends the pull. Messages that have arrived, or that the server sent before it received the unsubscription, can
// still be taken. While the connection is down, the end comes late.
func (p *Pull) Drain() {
	p.leaving.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.inboxes {
		_ = b.sub.Drain() // it fails only if the subscription has already ended
	}
}

// Stop ends the pull at once. Messages that haven't been taken are lost to this client, and the server delivers them
// again after AckWait.
func (p *Pull) Stop() {
	p.stop.Do(func() {
		p.leaving.Store(true)
		p.mu.Lock()
		for _, b := range p.inboxes {
			_ = b.sub.Unsubscribe() // as in Drain
		}
		p.mu.Unlock()
		p.nc.RemoveStatusListener(p.status)
		p.tick.Stop()
	})
}

// message converts raw to a message that arrived after since.
func (p *Pull) message(raw *nats.Msg, since time.Time) *Message {
	return &Message{nc: p.nc, raw: raw, turn: p.turnOf(raw), since: since}
}

// Rest yields messages that have arrived and weren't taken, without waiting.
func (p *Pull) Rest() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		for {
			select {
			case raw := <-p.in:
				since := p.age.took(len(p.in))
				if raw.Reply != "" && !yield(p.message(raw, since)) {
					return
				}
			default:
				return
			}
		}
	}
}
