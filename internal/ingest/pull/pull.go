// Package pull receives all messages of a JetStream pull consumer unchanged, even if they look like status messages.
//
// The server sends status messages, such as a heartbeat or the end of a request. The client library recognizes a status message by
// an empty payload and a header Status. If a producer publishes such a message, the library doesn't deliver it, or ends the pull.
// This package checks the reply subject, which no producer can influence. A consumer's message has a reply subject for its
// acknowledgement, and a status message has none.
//
// Both delivery modes pull their inputs with this package, and package lookup fetches the headers of results with it. Start
// reading at Pull, which has three parts. inboxes receives all messages. turns tracks the client's turns in a priority group.
// requests keeps enough requests pending at the server. Fetch makes a single request without a Pull.
package pull

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// Pull is one continuous pull. Next requests more messages as messages are taken. Only one goroutine may call Next, Claim and
// Rest. The other methods are safe for concurrent use.
type Pull struct {
	nc       *nats.Conn
	r        Request
	inboxes  inboxes
	turns    turns // this client's turns in a priority group
	requests requests
	mute     int              // number of ticks without a message or status message
	quiet    int              // number of ticks without a message
	age      age              // arrival times of the waiting messages
	status   chan nats.Status // signals a reconnect
	tick     *time.Ticker
	stop     sync.Once
}

// Open starts a pull. The caller must call Stop, even after Drain.
func Open(nc *nats.Conn, r Request) (*Pull, error) {
	p := &Pull{
		nc: nc, r: r,
		inboxes: inboxes{
			nc: nc, consumer: r.Consumer, ended: make(chan struct{}),
			// The capacity is twice the size of the pending requests, because requests from before a reconnect may also deliver
			// all their messages.
			in: make(chan *nats.Msg, 2*outstanding*(r.Messages+spareWords)),
		},
	}
	p.turns = turns{nc: nc, r: r, inboxes: &p.inboxes, unused: true}
	p.requests = requests{nc: nc, r: r, subject: r.subject(), turns: &p.turns}
	if _, err := p.inboxes.open(); err != nil {
		return nil, err
	}
	p.status = nc.StatusChanged(nats.CONNECTED)
	p.tick = time.NewTicker(r.Heartbeat / ticksPerBeat)
	p.age.mark(time.Now(), 0)
	return p, nil
}

// Next returns the next message. It keeps the intended number of requests pending at the server.
func (p *Pull) Next(ctx context.Context) (*Message, error) {
	for {
		if !p.inboxes.leaving.Load() {
			if err := p.requests.refill(); err != nil {
				return nil, err
			}
		}
		var raw *nats.Msg
		select {
		case raw = <-p.inboxes.in:
		default:
			var err error
			if raw, err = p.wait(ctx); err != nil {
				return nil, err
			}
		}
		if raw == nil {
			continue
		}
		since := p.age.took(len(p.inboxes.in))
		p.mute = 0
		if raw.Reply == "" {
			if err := p.handleStatus(raw); err != nil {
				return nil, err
			}
			continue
		}
		p.quiet = 0
		m := p.message(raw, since)
		if p.r.Group != "" && m.turn == 0 {
			continue // the message's inbox is closed; the server redelivers the message
		}
		if m.turn > p.turns.turn {
			if err := p.turns.begin(ctx, m.turn); err != nil {
				return nil, err
			}
		}
		p.requests.came(raw)
		return m, nil
	}
}

// wait waits for the next message. It returns nil, nil if the caller must call refill first.
func (p *Pull) wait(ctx context.Context) (*nats.Msg, error) {
	if p.requests.renew {
		p.requests.forget()
		return nil, nil
	}
	p.age.mark(time.Now(), len(p.inboxes.in))
	select {
	case raw := <-p.inboxes.in:
		return raw, nil
	case <-p.tick.C:
		return nil, p.measure()
	case <-p.status:
		p.requests.renew = true // the server with the pending requests may have been replaced
		return nil, nil
	case <-p.inboxes.ended:
		return p.last()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// last returns the next remaining message of a pull that has ended. If none remains, it fails with ErrEnded or
// nats.ErrConnectionClosed.
func (p *Pull) last() (*nats.Msg, error) {
	select {
	case raw := <-p.inboxes.in:
		return raw, nil
	default:
	}
	if p.nc.IsClosed() {
		return nil, nats.ErrConnectionClosed
	}
	return nil, ErrEnded
}

// ticksPerBeat is the number of ticks per heartbeat interval.
const ticksPerBeat = 2

// measure counts a tick and removes expired requests. It fails if the connection is closed, or with ErrSilent or ErrIdle.
func (p *Pull) measure() error {
	p.requests.expire(time.Now())
	if p.nc.IsClosed() {
		return nats.ErrConnectionClosed
	}
	if !p.nc.IsConnected() {
		p.mute = 0 // silence is normal without a connection
	}
	p.mute++
	p.quiet++
	switch idle := time.Duration(p.quiet) * p.r.Heartbeat / ticksPerBeat; {
	case p.mute > 2*ticksPerBeat:
		return ErrSilent
	case p.mute > ticksPerBeat:
		p.requests.renew = true // the requests may no longer be pending at the server
	case p.r.Idle > 0 && idle >= p.r.Idle:
		p.quiet = 0
		return ErrIdle
	}
	return nil
}

// handleStatus handles the status message raw. It returns an error if the pull cannot continue.
func (p *Pull) handleStatus(raw *nats.Msg) error {
	number, on, ours := p.inboxes.answered(raw)
	if !ours {
		return nil // the response to a request of Keep, or not a status message
	}
	over, err := ending(raw)
	if !over || err != nil {
		return err
	}
	messages := unused(raw, pendingHeader)
	asked := p.requests.over(number, messages, unused(raw, bytesHeader))
	code := raw.Header.Get("Status")
	if code == wordExpired || code == wordNone {
		if messages == asked.messages {
			p.turns.unspent(on)
		}
		return nil
	}
	// If the server doesn't report the remaining messages, another server or another client may have the consumer now, and all
	// requests may be lost.
	_, said := raw.Header[pendingHeader]
	p.requests.renew = p.requests.renew || !said
	if code == wordPinned {
		p.turns.lose(on.number)
	} else if asked.bytes > 0 {
		return p.r.tooSmall(raw, asked.bytes)
	}
	return nil
}

// Claim returns the pin of m's turn, and makes that turn the current one. Call Claim if m comes from Rest instead of Next.
func (p *Pull) Claim(ctx context.Context, m *Message) (string, error) {
	return p.turns.claim(ctx, m.turn)
}

// Pin returns the server's id (Nats-Pin-Id) for this client's turn in a priority group. It is empty if the client isn't pinned.
func (p *Pull) Pin() string { return p.turns.held() }

// Keep extends this client's turn in a priority group while the client takes no messages. It sends a request whose byte limit is
// too small for any message, and does nothing without a turn.
func (p *Pull) Keep() error {
	pin := p.Pin()
	if pin == "" {
		return nil
	}
	w := wire{Batch: 1, MaxBytes: 1, Expires: p.r.Expires, Group: p.r.Group, Pin: pin}
	return w.send(p.nc, p.requests.subject, p.nc.NewInbox())
}

// Drain ends the pull. Next still returns the messages that the server sends before it receives the unsubscription, and ErrEnded
// after them. While the connection is down, the end is delayed.
func (p *Pull) Drain() { p.inboxes.leave((*nats.Subscription).Drain) }

// Stop ends the pull at once. After AckWait, the server redelivers messages that weren't taken.
func (p *Pull) Stop() {
	p.stop.Do(func() {
		p.inboxes.leave((*nats.Subscription).Unsubscribe)
		p.nc.RemoveStatusListener(p.status)
		p.tick.Stop()
	})
}

func (p *Pull) message(raw *nats.Msg, since time.Time) *Message {
	return &Message{nc: p.nc, raw: raw, turn: p.turns.turnOf(raw), since: since}
}

// Rest yields the messages that have arrived but that Next hasn't returned. It doesn't wait.
func (p *Pull) Rest() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		for {
			select {
			case raw := <-p.inboxes.in:
				since := p.age.took(len(p.inboxes.in))
				if raw.Reply != "" && !yield(p.message(raw, since)) {
					return
				}
			default:
				return
			}
		}
	}
}

// answerWithin is the time limit for the server's responses to a request, in addition to the request's own wait.
const answerWithin = 2 * time.Second

// Fetch requests up to n messages, waits at most wait for them, and passes each to take. With wait 0, the server sends only
// available messages. came is the number of messages that arrived. Fetch always waits for the end of the request, because messages
// in transit would be lost to this client until AckWait. It uses only r's API, stream, consumer and byte limit. The request also
// ends at the byte limit.
func Fetch(nc *nats.Conn, r Request, n int, wait time.Duration, take func(*Message)) (came int, err error) {
	in := make(chan *nats.Msg, n+spareWords)
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, in)
	if err != nil {
		return 0, fmt.Errorf("fetch from consumer %q: %w", r.Consumer, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	bytes, asked := r.bytes(), time.Now()
	w := wire{Batch: n, MaxBytes: bytes, Expires: wait, NoWait: wait == 0}
	if err := w.send(nc, r.subject(), inbox); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait+answerWithin)
	defer cancel()
	for came < n {
		select {
		case raw := <-in:
			if raw.Reply == "" {
				over, err := ending(raw)
				if over && !strings.EqualFold(raw.Header.Get("Description"), conflictDone) {
					return came, errors.Join(err, r.tooSmall(raw, bytes))
				}
				continue
			}
			came++
			take(&Message{nc: nc, raw: raw, since: pause.Process().Since(asked, time.Now())})
		case <-ctx.Done():
			if nc.IsClosed() {
				return came, nats.ErrConnectionClosed
			}
			return came, ErrSilent
		}
	}
	return came, nil
}

// ending reports whether the status message raw ends its request. It returns an error if every further request would fail.
func ending(raw *nats.Msg) (over bool, err error) {
	why := raw.Header.Get("Description")
	switch raw.Header.Get("Status") {
	case wordExpired, wordNone, wordPinned:
		return true, nil
	case wordConflict:
		return true, fatal(why)
	case wordBad, wordRequired:
		return true, fmt.Errorf("the server refuses the request for messages: %s", why)
	case wordNobody:
		return true, fmt.Errorf("%w for the consumer", nats.ErrNoResponders)
	}
	return false, nil
}

// age computes, for each message taken from a queue, a lower bound of its arrival time. Only the goroutine that takes messages
// may use it.
type age struct {
	taken uint64    // number of messages taken so far
	at    time.Time // time of the latest mark call
	until uint64    // number of messages that were taken or waiting at the latest mark call
	since time.Time // lower bound of the arrival time for the first until messages
}

// mark records waiting, the number of messages in the queue at the time now.
func (a *age) mark(now time.Time, waiting int) {
	a.since, a.at, a.until = a.at, now, a.taken+uint64(waiting)
}

// took records that one message was taken, and returns a lower bound of its arrival time. left is the number of messages that remain.
func (a *age) took(left int) time.Time {
	a.taken++
	if a.taken <= a.until {
		return a.since
	}
	// The message arrived after the latest mark call.
	now := time.Now()
	came := pause.Process().Since(a.at, now)
	a.mark(now, left)
	a.since = came // some waiting messages may have arrived just after came
	return came
}
