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
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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
	Expires   time.Duration // how long one request lasts
	Heartbeat time.Duration // how often the server says that it is there; at most half of Expires
	Idle      time.Duration // after how long without a message Next says so; 0: never
}

// outstanding is how many requests are with the server at once, so that it has another while the end of one is on its way.
// So what is on its way and waits here is bounded by twice what one request asks for.
const outstanding = 2

// ticksPerBeat is how often between two heartbeats the silence is measured.
const ticksPerBeat = 2

// Pull is one continuous pull. It asks for more as messages are taken. Next is for one goroutine; the other methods are for
// any.
type Pull struct {
	nc      *nats.Conn
	r       Request
	subject string // where requests go
	inbox   string // where answers come, with the request's number behind it
	sub     *nats.Subscription
	in      chan *nats.Msg
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

	age age // of what waits in in

	mu  sync.Mutex
	pin string // the server's name for this client's turn, in a priority group
}

// Open begins a pull. The caller ends it with Stop, or with Drain and taking the rest; Stop is to be called in any case.
func Open(nc *nats.Conn, r Request) (*Pull, error) {
	p := &Pull{
		nc: nc, r: r, subject: subject(r), inbox: nc.NewInbox() + ".",
		// All that can be on its way, twice: requests of before a reconnection may have been answered in full.
		in:    make(chan *nats.Msg, 2*outstanding*(r.Messages+spareWords)),
		ended: make(chan struct{}),
	}
	var err error
	if p.sub, err = nc.ChanSubscribe(p.inbox+"*", p.in); err != nil {
		return nil, fmt.Errorf("pull from consumer %q: %w", r.Consumer, err)
	}
	p.sub.SetClosedHandler(func(string) { p.end.Do(func() { close(p.ended) }) })
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
		p.came(raw)
		return &Message{nc: p.nc, raw: raw, since: since}, nil
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
	_ = p.sub.Drain() // one that has ended already is what is asked for
}

// Stop ends the pull at once. What has not been taken is lost to this client, and the server delivers it again after
// AckWait.
func (p *Pull) Stop() {
	p.stop.Do(func() {
		p.leaving.Store(true)
		_ = p.sub.Unsubscribe()
		p.nc.RemoveStatusListener(p.status)
		p.tick.Stop()
	})
}

// number is the request's that raw answers; ok is false where it answers none.
func (p *Pull) number(raw *nats.Msg) (n uint64, ok bool) {
	rest, ok := strings.CutPrefix(raw.Subject, p.inbox)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, err == nil
}

// Rest takes what has come and was not taken. It waits for nothing.
func (p *Pull) Rest() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		for {
			select {
			case raw := <-p.in:
				since := p.age.took(len(p.in))
				if raw.Reply != "" && !yield(&Message{nc: p.nc, raw: raw, since: since}) {
					return
				}
			default:
				return
			}
		}
	}
}
