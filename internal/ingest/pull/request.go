package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/memory"
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

// tooSmall handles status message raw, which ended a request of asked bytes. If the server refused the request as too
// small, tooSmall raises r.Limit. It returns an error if a larger request isn't allowed.
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

// outstanding is the number of requests that are pending at the server. Their total size bounds the messages in transit and in the
// client.
const outstanding = memory.PendingRequests

// ask is one pending request.
type ask struct {
	number   uint64 // 0 means no request
	messages int
	bytes    int
	until    time.Time // the request has ended by then, even if its end isn't reported
}

// requests tracks one pull's requests that are pending at the server. Only the goroutine that calls Next may use it.
type requests struct {
	nc      *nats.Conn
	r       Request
	subject string // subject for requests
	turns   *turns

	live  [outstanding]ask
	asked uint64 // number of requests made so far
	left  int    // number of messages that pending requests may still deliver
	room  int    // number of bytes, as the server counts, that they may still deliver
	renew bool   // whether to forget all requests once all waiting messages are taken
}

// refill sends requests until the intended number is pending at the server. It counts the messages of ended requests until they
// arrive, because a server with replicas may send them after the end of their request.
func (q *requests) refill() error {
	if q.left <= 0 || q.room <= 0 {
		// The server doesn't report the end of a request if its messages use up its bytes exactly.
		q.forget()
	}
	none := q.live == [outstanding]ask{}
	alone := q.turns.isUnclaimed()
	for i := range q.live {
		if q.live[i].number != 0 || alone && !none {
			continue
		}
		// The byte limit may have grown. The server ends a pending request with a smaller limit when a message doesn't fit.
		messages, full := q.r.Messages, q.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server alternates between requests. The first of two gets half the size, or both would end at the same time.
			messages, bytes = (messages+1)/2, (bytes+1)/2
		}
		if q.left+messages > outstanding*q.r.Messages || q.room+bytes > outstanding*full {
			return nil
		}
		switch err := q.send(i, messages, bytes); {
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			return nil // there is no connection; refill is called again after a reconnect
		case err != nil:
			return err
		}
		if alone {
			return nil
		}
	}
	return nil
}

// send sends a request for the given messages and bytes, and stores it in live[i].
func (q *requests) send(i, messages, bytes int) error {
	q.asked++
	w := wire{
		Batch: messages, MaxBytes: bytes, Expires: q.r.Expires, Heartbeat: q.r.Heartbeat, Group: q.r.Group, Pin: q.turns.held(),
	}
	to, err := q.turns.to(w.Pin)
	if err != nil {
		return err
	}
	if err := w.send(q.nc, q.subject, to.prefix+strconv.FormatUint(q.asked, 10)); err != nil {
		q.turns.unsent(w.Pin)
		return err
	}
	q.live[i] = ask{number: q.asked, messages: messages, bytes: bytes, until: time.Now().Add(q.r.Expires + q.r.Heartbeat)}
	q.left += messages
	q.room += bytes
	return nil
}

// over records the end of request number, and returns the request, or the zero value if it has already ended. messages and bytes
// are the amounts that it did not deliver.
func (q *requests) over(number uint64, messages, bytes int) (ended ask) {
	for i := range q.live {
		if q.live[i].number == number {
			ended, q.live[i] = q.live[i], ask{}
			q.left -= messages
			q.room -= bytes
		}
	}
	return ended
}

// came records the arrival of message raw for any of the requests.
func (q *requests) came(raw *nats.Msg) {
	q.left--
	q.room -= raw.Size()
	if q.r.Group != "" {
		q.room += q.turns.added(raw)
	}
}

// expire forgets all requests if one is past its time until.
func (q *requests) expire(now time.Time) {
	for _, a := range q.live {
		if a.number != 0 && now.After(a.until) {
			q.forget()
			return
		}
	}
}

// forget removes all requests.
func (q *requests) forget() {
	q.live, q.left, q.room, q.renew = [outstanding]ask{}, 0, 0, false
}

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

// These are the numbers of bytes that the server adds to a message's header for the pin, after it has counted the message.
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

// inbox receives the responses to requests. In a priority group, each inbox belongs to one turn of this client (see turns), or to
// an attempt to get a turn.
type inbox struct {
	number uint64 // 1 for the first
	prefix string // prefix of the inbox's subjects; the request's number follows
	sub    *nats.Subscription
	fresh  time.Time // time of the latest request without a pin
}

// inboxesMax is the maximum number of inboxes of a pull. A message that arrives late on an older inbox is redelivered.
const inboxesMax = 4

// inboxes has the inboxes of one pull. All inboxes deliver to one channel. Only one goroutine may open and read inboxes, but any
// goroutine may call leave.
type inboxes struct {
	nc       *nats.Conn
	consumer string
	in       chan *nats.Msg
	subs     atomic.Int32  // subscriptions that deliver to in
	ended    chan struct{} // closed when nothing more arrives on in
	end      sync.Once     // guards the close of ended
	opened   uint64        // number of inboxes so far
	leaving  atomic.Bool   // whether leave was called, which ends requests

	mu   sync.Mutex
	list []*inbox // newest last; only the goroutine that opens inboxes changes it, with mu held
}

// open opens another inbox. It closes the oldest if there are more than inboxesMax.
func (s *inboxes) open() (*inbox, error) {
	b := &inbox{number: s.opened + 1, prefix: s.nc.NewInbox() + "."}
	s.subs.Add(1)
	var err error
	if b.sub, err = s.nc.ChanSubscribe(b.prefix+"*", s.in); err != nil {
		s.subs.Add(-1)
		return nil, fmt.Errorf("pull from consumer %q: %w", s.consumer, err)
	}
	b.sub.SetClosedHandler(func(string) {
		if s.subs.Add(-1) == 0 {
			s.end.Do(func() { close(s.ended) })
		}
	})
	s.opened = b.number
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving.Load() { // leave ran before the inbox was in the list
		_ = b.sub.Unsubscribe()
	}
	s.list = append(s.list, b)
	if len(s.list) > inboxesMax {
		_ = s.list[0].sub.Unsubscribe() // fails only on a closed connection, which Next detects
		s.list = append(s.list[:0], s.list[1:]...)
	}
	return b, nil
}

func (s *inboxes) last() *inbox { return s.list[len(s.list)-1] }

// numbered returns the inbox with the given number, or nil if it no longer exists.
func (s *inboxes) numbered(number uint64) *inbox {
	for _, b := range s.list {
		if b.number == number {
			return b
		}
	}
	return nil
}

// of returns the inbox on which raw arrived, or nil if that inbox no longer exists.
func (s *inboxes) of(raw *nats.Msg) *inbox {
	for i := len(s.list) - 1; i >= 0; i-- {
		if s.list[i].sub == raw.Sub {
			return s.list[i]
		}
	}
	return nil
}

// answered returns the number and the inbox of the request that the status message raw answers. ok is false if raw answers no
// request on an open inbox.
func (s *inboxes) answered(raw *nats.Msg) (number uint64, on *inbox, ok bool) {
	if on = s.of(raw); on == nil {
		return 0, nil, false
	}
	text, ok := strings.CutPrefix(raw.Subject, on.prefix)
	if !ok {
		return 0, nil, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, on, err == nil
}

// leave ends the inboxes with end. An inbox that is opened afterwards ends at once.
func (s *inboxes) leave(end func(*nats.Subscription) error) {
	s.leaving.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.list {
		_ = end(b.sub) // an error means that the subscription has already ended
	}
}
