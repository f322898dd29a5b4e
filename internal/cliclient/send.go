package cliclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"millrace/internal/console"
	"millrace/internal/ingest/jsapi"
)

const (
	// windowMessages and windowBytes limit the payloads that the server hasn't confirmed yet.
	windowMessages = 512
	windowBytes    = 32 << 20

	// answerPatience is the maximum time for a response of the server, and for a reconnect.
	answerPatience = 30 * time.Second

	// lastAnswers is the maximum time that Send waits for responses after its context has ended.
	lastAnswers = 2 * time.Second

	// maxFailures is the number of consecutive failures after which Send gives up. It is also the maximum number of
	// failures in a Report.
	maxFailures = 10
)

// ErrGivenUp is the error of a Report if Send gave up before the last payload.
var ErrGivenUp = errors.New("gave up: nothing more was sent")

// ErrUnanswered is the failure of a payload without a response of the server when Send ended.
var ErrUnanswered = errors.New("interrupted before the server's answer: it may be stored")

// Sender stores payloads in the input stream.
type Sender struct {
	Conn    *nats.Conn
	API     jsapi.API // JetStream API of the input stream
	Stream  string    // input stream; a payload that another stream would store is an error
	Subject string
	Header  nats.Header
	Rate    float64 // maximum messages per second; 0 means no limit

	outage time.Duration // maximum time for a reconnect; 0 means answerPatience, and tests set less

	stored, bytes atomic.Int64
}

// Report is the result of Send.
type Report struct {
	Stored      int64   // payloads that the server has confirmed
	Bytes       int64   // total size of those payloads
	Records     int64   // records in the stored frames
	First, Last uint64  // lowest and highest sequence of those payloads; other senders' messages may be between them
	Failed      int64   // payloads that were not stored or not confirmed
	Failures    []error // errors of the first failed payloads
	Err         error   // reason why Send ended before the last payload, or nil
	Took        time.Duration
}

// Stored returns the number of payloads stored so far and their total size in bytes.
func (s *Sender) Stored() (payloads, bytes int64) { return s.stored.Load(), s.bytes.Load() }

// pending is a payload that the server hasn't confirmed yet.
type pending struct {
	Payload
	msg    *nats.Msg
	future jetstream.PubAckFuture // nil if failed is set
	failed error
	unsent bool // failed concerns only this payload, so it doesn't count toward maxFailures
}

// Send publishes payloads until the channel is closed or ctx ends, and waits for the server's responses. After ctx
// ends, it waits for at most lastAnswers.
func (s *Sender) Send(ctx context.Context, payloads <-chan Payload) (*Report, error) {
	js, err := s.API.New(s.Conn, jetstream.WithPublishAsyncMaxPending(windowMessages+1), jetstream.WithPublishAsyncTimeout(answerPatience))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sent := make(chan pending, windowMessages-1)
	room := semaphore.NewWeighted(windowBytes)
	answers, noMore := context.WithCancel(context.WithoutCancel(ctx))
	defer noMore()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastAnswers, noMore) })()
	c := &collector{sender: s, js: js, late: answers.Done(), stop: stop, report: &Report{}, look: 100 * time.Millisecond}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range sent {
			c.collect(sending, &p)
			room.Release(p.weight())
		}
	}()
	s.publish(sending, js, payloads, sent, room)
	close(sent)
	<-done
	c.report.Took = time.Since(start)
	if cause := context.Cause(sending); cause != nil {
		c.report.Err = cause
	}
	return c.report, nil
}

// weight returns the payload's share of windowBytes.
func (p *pending) weight() int64 { return int64(min(len(p.Data), windowBytes)) }

// publish publishes payloads. It blocks while sent or room is full.
func (s *Sender) publish(ctx context.Context, js jetstream.JetStream, payloads <-chan Payload, sent chan<- pending, room *semaphore.Weighted) {
	run := nuid.Next() // prefix of the message ids, by which the stream drops second copies
	pace := rate.NewLimiter(rate.Limit(s.Rate), 1)
	for n := 0; ; n++ {
		var p Payload
		select {
		case next, more := <-payloads:
			if !more {
				return
			}
			p = next
		case <-ctx.Done():
			return
		}
		if s.Rate > 0 {
			pause(ctx, pace.Reserve().Delay())
		}
		q := pending{Payload: p, msg: &nats.Msg{Subject: s.Subject, Header: nats.Header{}, Data: p.Data}, failed: p.Err, unsent: p.Err != nil}
		for name, values := range s.Header {
			q.msg.Header[name] = values
		}
		q.msg.Header.Set(jetstream.MsgIDHeader, run+"-"+strconv.Itoa(n))
		q.msg.Header.Set(jetstream.ExpectedStreamHeader, s.Stream)
		if room.Acquire(ctx, q.weight()) != nil || ctx.Err() != nil {
			return
		}
		if q.failed == nil {
			q.future, q.failed = js.PublishMsgAsync(q.msg)
			q.unsent = errors.Is(q.failed, nats.ErrMaxPayload)
		}
		sent <- q // blocks while the buffer is full; after ctx ends, the collector soon empties it
	}
}

// collector waits for the server's responses, in the order of the payloads.
type collector struct {
	sender *Sender
	js     jetstream.JetStream
	late   <-chan struct{}         // closed when Send stops waiting for responses
	stop   context.CancelCauseFunc // stops publishing
	report *Report
	row    int           // consecutive failures; unsent payloads do not count
	look   time.Duration // interval at which answer checks for a refusal
}

// collect waits for the response to one payload. If the response was lost with the connection, collect publishes the
// payload again until ctx ends or the time for a reconnect has passed.
func (c *collector) collect(ctx context.Context, p *pending) {
	if p.unsent {
		c.record(p, p.failed)
		return
	}
	ack, err := c.answer(p)
	for deadline := time.Now().Add(cmp.Or(c.sender.outage, answerPatience)); err != nil && c.lost(err) && ctx.Err() == nil && time.Now().Before(deadline); {
		once, cancel := context.WithTimeout(ctx, time.Second)
		again, failed := c.js.PublishMsg(once, p.msg)
		cancel()
		if ctx.Err() == nil || failed == nil {
			ack, err = again, failed
		}
		if err != nil && !c.sender.Conn.IsConnected() {
			pause(ctx, 100*time.Millisecond)
		}
	}
	if err != nil {
		c.fail(p, err)
		return
	}
	c.row = 0
	if c.report.Stored == 0 || ack.Sequence < c.report.First {
		c.report.First = ack.Sequence
	}
	c.report.Last = max(c.report.Last, ack.Sequence)
	c.report.Stored++
	c.report.Bytes += int64(len(p.Data))
	c.report.Records += int64(p.Records)
	c.sender.stored.Add(1)
	c.sender.bytes.Add(int64(len(p.Data)))
}

// answer waits for the server's response to p. If the user lacks the permission to publish, the server sends no
// response, only an error on the connection.
func (c *collector) answer(p *pending) (*jetstream.PubAck, error) {
	if p.failed != nil {
		return nil, p.failed
	}
	for {
		select {
		case ack := <-p.future.Ok():
			return ack, nil
		case err := <-p.future.Err():
			return nil, err
		case <-time.After(c.look):
			if err := Refusal(c.sender.Conn); err != nil {
				c.look = time.Millisecond // the server refuses the remaining payloads, too
				return nil, err
			}
		case <-c.late:
			select {
			case ack := <-p.future.Ok():
				return ack, nil
			default:
				return nil, ErrUnanswered
			}
		}
	}
}

// lost reports whether err is due to a lost connection or a server restart, so the payload must be published again.
func (c *collector) lost(err error) bool {
	return Lost(err) || c.report.Stored > 0 && errors.Is(err, jetstream.ErrNoStreamResponse) // the server has just restarted
}

// fail records the failure of a sent payload. It stops Send if the next payloads would fail, too.
func (c *collector) fail(p *pending, err error) {
	c.record(p, err)
	if c.row++; c.row >= maxFailures || c.lost(err) || Hopeless(err) {
		c.stop(ErrGivenUp)
	}
}

func (c *collector) record(p *pending, err error) {
	c.report.Failed++
	if len(c.report.Failures) < maxFailures {
		c.report.Failures = append(c.report.Failures, fmt.Errorf("%s: %w", p.Place, Explain(err, c.sender.Conn, c.sender.Stream, c.sender.Subject)))
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Progress returns a progress line for a terminal with width columns. The line has the number of stored payloads and
// the rates. Unless size is 0, it also has a bar that shows the read bytes as a share of size.
func (s *Sender) Progress(elapsed time.Duration, read, size int64, width int) string {
	stored, bytes := s.Stored()
	seconds := max(elapsed.Seconds(), 1e-9)
	text := fmt.Sprintf("%s stored, %s/s, %s/s", console.Count(stored), console.Count(int64(float64(stored)/seconds)), console.Bytes(float64(bytes)/seconds))
	if size <= 0 {
		return text
	}
	// Bytes are read before the server confirms them, so the bar can be full before the end.
	return console.Bar(min(read, size), size, max(width-len(text)-5, 10)) + " " + text
}

// These are error codes of the server. streamMismatch means that a stream other than the expected one would store the
// message. storeFailed means that the stream can't store the message.
const (
	streamMismatch = 10060
	storeFailed    = 10077
)

// Refusal returns the last error of a connection if it is a permission error, and otherwise nil. The server doesn't
// respond to a publish without permission. The connection keeps the error until it reconnects or has another error.
func Refusal(nc *nats.Conn) error {
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: docs/security.md lists the permissions that each user needs", err)
	}
	return nil
}

// WithRefusal adds the Refusal of a connection to err. It returns nil if err is nil.
func WithRefusal(err error, nc *nats.Conn) error {
	if missing := Refusal(nc); err != nil && missing != nil {
		return fmt.Errorf("%w: %w", err, missing)
	}
	return err
}

// Lost reports whether err is a connection error or a timeout, after which a message may or may not be stored.
func Lost(err error) bool {
	for _, kind := range []error{nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting, nats.ErrTimeout, context.DeadlineExceeded,
		jetstream.ErrAsyncPublishTimeout} {
		if errors.Is(err, kind) {
			return true
		}
	}
	broken := (*net.OpError)(nil)
	return errors.As(err, &broken)
}

// Hopeless reports whether err means that no message can be stored on the subject of the failed message.
func Hopeless(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.As(err, &api) && api.ErrorCode == streamMismatch || errors.Is(err, nats.ErrPermissionViolation)
}

// Explain adds advice to the server's error for a message that the stream should have stored.
func Explain(err error, nc *nats.Conn, stream, subject string) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w of %d bytes, with its headers", errTooLarge, nc.MaxPayload())
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream stores %s: start a worker with MILLRACE_PROVISION=true, which creates the stream %s, or check --subject", subject, stream)
	case errors.As(err, &api) && api.ErrorCode == streamMismatch:
		return fmt.Errorf("%s is a subject of another stream than %s, which the worker reads: set MILLRACE_STREAM, or check --subject", subject, stream)
	case errors.As(err, &api) && api.ErrorCode == storeFailed:
		return explainFull(err, stream, api.Description)
	}
	return err
}

// explainFull adds advice to err if the stream is full. description is the server's error text.
func explainFull(err error, stream, description string) error {
	switch description {
	case "maximum bytes exceeded":
		return fmt.Errorf("the stream %s is full: wait until workers have processed payloads, or raise its limit: nats stream edit %s --max-bytes SIZE "+
			"(for a stream that a worker will create: MILLRACE_STREAM_MAX_BYTES): %w", stream, stream, err)
	case "maximum messages exceeded":
		return fmt.Errorf("the stream %s is full: wait until workers have processed payloads, or raise its limit: nats stream edit %s --max-msgs NUMBER: %w",
			stream, stream, err)
	}
	return err
}
