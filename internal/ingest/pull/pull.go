// Package pull takes messages from a JetStream pull consumer, exactly as the server sends them.
//
// The client library tells the server's own word (a heartbeat, the end of a request, the end of the consumer) from a
// message by what is in it: no payload, and a header Status. But that is what a producer may send too, and the library
// would hand such an input to nobody, or end the pull for it. Here they are told apart by what no producer can choose: a
// message of a consumer comes with a subject for its acknowledgement, and the server's own word with none.
package pull

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/capacity"
)

// What ends a pull, beside the errors of the context and of the connection (nats.ErrConnectionClosed).
var (
	// ErrSilent says that the server has said nothing for more than two heartbeats, though it was asked to.
	ErrSilent = errors.New("the server has gone silent: no heartbeat of the pull")

	// ErrEnded says that the pull was drained or stopped, and that nothing of it is left.
	ErrEnded = errors.New("the pull has ended")

	// ErrGone says that the consumer was deleted.
	ErrGone = errors.New("the consumer was deleted")

	// ErrIdle says that no message has come for Request.Idle. The pull goes on.
	ErrIdle = errors.New("no message has come for a while")
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

// outstanding is how many requests are with the server at once, so that it has another while the end of one is on its way.
// So what is on its way and waits here is bounded by twice what one request asks for.
const outstanding = capacity.Requests

// ticksPerBeat is how often between two heartbeats the silence is measured.
const ticksPerBeat = 2

// Pull is one continuous pull. It asks for more as messages are taken. Next is for one goroutine; the other methods are for
// any.
type Pull struct {
	nc      *nats.Conn
	r       Request
	subject string // where requests go
	in      chan *nats.Msg
	subs    atomic.Int32     // subscriptions that bring something to in
	ended   chan struct{}    // closed when nothing more comes to in
	end     sync.Once        // closes it
	status  chan nats.Status // tells of a connection made again
	tick    *time.Ticker
	stop    sync.Once
	leaving atomic.Bool // nothing more is to be asked for

	live  [outstanding]ask // requests that the server has
	asked uint64           // their number so far
	left  int              // messages that they may still bring
	room  int              // bytes that they may still bring, as the server counts
	renew bool             // forget the live requests once everything that came is taken
	mute  int              // ticks without a word from the server
	quiet int              // ticks without a message

	inboxes []*inbox // the latest last; changed by who calls Next, with mu held
	opened  uint64   // inboxes so far
	turn    uint64   // number of the inbox of this client's turn in a priority group; 0 before the first
	unused  bool     // the last request without a pin ended and had brought nothing: its inbox can be used again

	age age // of the messages that wait

	mu  sync.Mutex
	pin string // the server's name for this client's turn
}

// Open begins a pull. The caller ends it with Stop, or with Drain and taking the rest; Stop is to be called in any case.
func Open(nc *nats.Conn, r Request) (*Pull, error) {
	p := &Pull{
		nc: nc, r: r, subject: subject(r), unused: true,
		// All that can be on its way, twice: requests of before a reconnection may have been answered in full.
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

// spareWords is how many words of the server may wait beside a request's messages.
const spareWords = 16

// subject is where a consumer is asked.
func subject(r Request) string { return "$JS.API.CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer }

// Next returns the next message. It asks the server for more where there is room.
func (p *Pull) Next(ctx context.Context) (*Message, error) {
	for {
		if err := p.ask(); err != nil {
			return nil, err
		}
		var raw *nats.Msg
		select {
		case raw = <-p.in: // mostly there is one, and the rest need not be looked at
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
			continue // of a turn long over; the server delivers it again
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

// wait waits for what comes next when everything that came is taken. It returns neither a message nor an error where
// requests may have to be made anew.
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
		p.renew = true // the server that had the requests may be another now
		return nil, nil
	case <-p.ended:
		return p.last()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// last takes what is left of a pull that has ended.
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

// measure counts the silence at a tick.
func (p *Pull) measure() error {
	p.expire(time.Now())
	switch {
	case p.nc.IsClosed():
		return nats.ErrConnectionClosed
	case !p.nc.IsConnected():
		p.mute = 0 // there is nobody to hear from, and the connection says when there is
	}
	p.mute++
	p.quiet++
	switch tick := p.r.Heartbeat / ticksPerBeat; {
	case p.mute > 2*ticksPerBeat:
		return ErrSilent
	case p.mute > ticksPerBeat:
		p.renew = true // the server may have none of the requests
	case p.r.Idle > 0 && time.Duration(p.quiet)*tick >= p.r.Idle:
		p.quiet = 0
		return ErrIdle
	}
	return nil
}

// Drain ends the pull; what has come, and what the server sent before it heard of that, can still be taken. With the
// connection down the end comes late.
func (p *Pull) Drain() {
	p.leaving.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.inboxes {
		_ = b.sub.Drain() // one that has ended already is what is asked for
	}
}

// Stop ends the pull at once. What has not been taken is lost to this client, and the server delivers it again after
// AckWait.
func (p *Pull) Stop() {
	p.stop.Do(func() {
		p.leaving.Store(true)
		p.mu.Lock()
		for _, b := range p.inboxes {
			_ = b.sub.Unsubscribe() // likewise
		}
		p.mu.Unlock()
		p.nc.RemoveStatusListener(p.status)
		p.tick.Stop()
	})
}

// message makes the message of what has come since that moment.
func (p *Pull) message(raw *nats.Msg, since time.Time) *Message {
	return &Message{nc: p.nc, raw: raw, turn: p.turnOf(raw), since: since}
}

// Rest takes what has come and was not taken. It waits for nothing.
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
