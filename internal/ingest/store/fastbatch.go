package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fastBatches sends fast batches on one connection, and passes the server's answers to their batches.
//
// The reply subject of a message identifies its batch and its position (ADR-50 of nats-architecture-and-design):
//
//	<inbox>.<id>.<flow>.<gap mode>.<number in the batch>.<operation>.$FI
//
// The publisher in jetstreamext is unsuitable because it chooses the ids of batches. Commit markers need ids that the next owner
// of a partition can derive (adr/0046). That publisher also waits for an answer before it sends the second message. This wait is
// unnecessary, because a server that refuses the first message refuses the other messages too.
//
// The server ends a batch when it refuses a message, with one exception. If another stream takes the last space between the
// server's two checks for space, the server reports an error and continues with the next message. A failed batch may therefore be
// stored with gaps. If the server had counted the refused message as the batch's last, it keeps the batch open without a limit. It
// then answers no message with the batch's id.
type fastBatches struct {
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription

	mu     sync.Mutex
	number uint64
	open   map[string]*fastBatch // key: fastBatch.token
}

func newFastBatches(nc *nats.Conn) (*fastBatches, error) {
	s := &fastBatches{nc: nc, inbox: nc.NewInbox(), open: make(map[string]*fastBatch)}
	var err error
	if s.sub, err = nc.Subscribe(s.inbox+".>", s.answered); err != nil {
		return nil, fmt.Errorf("subscribe to the answers to batches: %w", err)
	}
	return s, nil
}

// The operations in reply subjects.
const (
	opStart     = "0"
	opAppend    = "1"
	opCommit    = "2" // this is the batch's last message
	opCommitEnd = "3" // the batch ended before this message, which isn't stored
	opPing      = "4" // the server reports its progress
)

// Fields of reply subjects. batchFlow makes the server report progress rarely, because the batch size already bounds the messages
// in flight. batchGap makes the server end a batch if a message is missing.
const (
	batchFlow   = "65535"
	batchGap    = "fail"
	batchSuffix = ".$FI"
)

// fastBatch is one batch in flight to the server.
type fastBatch struct {
	FastBatch
	*fastBatches
	token      string // identifies the batch on this connection; part of prefix
	prefix     string // prefix of the batch's reply subjects
	reconnects uint64 // the connection's count of reconnects at the start of the batch
	outcome    chan batchAnswer
}

// batchAnswer is an answer of the server to a batch. Type is "" when the batch has ended, "ack" for progress or after a ping,
// "gap" if messages are missing, and "err" if the server refuses a message.
type batchAnswer struct {
	Type     string              `json:"type"`
	Sequence uint64              `json:"seq"` // stream sequence of the last message; with other types, the number of a message in the batch
	Count    int                 `json:"count"`
	Error    *jetstream.APIError `json:"error"`

	failed error // set if the answer is invalid, or no stream has the subject
}

// FastBatch is a batch for StoreFast.
type FastBatch struct {
	// ID identifies the batch among all batches of the stream. It must be a valid subject token of at most 64 characters. If it is
	// empty, StoreFast creates a new one.
	ID string

	Messages []*nats.Msg

	// Confirm reports whether StoreFast waits before message i until the server has confirmed all earlier messages. It may be nil.
	Confirm func(i int) bool
}

// ErrBatchEnded means that the server has ended a batch because a message is missing, or because another batch has the same id.
var ErrBatchEnded = errors.New("the server has ended the batch: a message was not the next one")

// ErrBatchStuck means that the server stores no messages with the id of the batch, and doesn't answer them.
var ErrBatchStuck = errors.New("the server has ended another batch with the same id, and waits for a message that it could not store")

// begin prepares a batch.
func (s *fastBatches) begin(b FastBatch) *fastBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	f := &fastBatch{
		FastBatch: b, fastBatches: s, token: strconv.FormatUint(s.number, 36), reconnects: s.nc.Stats().Reconnects,
		outcome: make(chan batchAnswer, 1),
	}
	id := cmp.Or(b.ID, s.inbox[strings.LastIndexByte(s.inbox, '.')+1:]+f.token)
	f.prefix = strings.Join([]string{s.inbox, f.token, id, batchFlow, batchGap, ""}, ".")
	s.open[f.token] = f
	return f
}

// alone reports whether the batch has only one message.
func (f *fastBatch) alone() bool { return len(f.Messages) == 1 }

// answered passes an answer to its batch, unless the answer only reports progress. The batch keeps only the first answer, because
// the server sends another one about earlier messages after it refuses a message.
func (s *fastBatches) answered(m *nats.Msg) {
	token, _, _ := strings.Cut(m.Subject[len(s.inbox)+1:], ".")
	s.mu.Lock()
	f := s.open[token]
	s.mu.Unlock()
	if f == nil {
		return // the batch has ended
	}
	a, toPing := readAnswer(m), strings.HasSuffix(m.Subject, "."+opPing+batchSuffix)
	switch {
	case a.Type == "ack" && !toPing, a.Type == "gap" && toPing && f.alone():
		return // a second answer follows
	case a.Type == "" && a.Error == nil && toPing:
		a.Type = "gap" // the ping has ended another batch
	}
	select {
	case f.outcome <- a:
	default:
	}
}

func readAnswer(m *nats.Msg) (a batchAnswer) {
	if m.Header.Get("Status") == "503" {
		return batchAnswer{failed: jetstream.ErrNoStreamResponse}
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return batchAnswer{failed: fmt.Errorf("read the answer to a batch: %w", err)}
	}
	return a
}

// publish stores the batch and returns the stream sequence of its last message. It returns an error unless the server confirms
// that all messages are stored. timeout applies to each answer of the server.
func (f *fastBatch) publish(ctx context.Context, timeout time.Duration) (sequence uint64, err error) {
	defer func() {
		f.mu.Lock()
		delete(f.open, f.token) // later answers are ignored
		f.mu.Unlock()
	}()
	err = f.sendAll(ctx, timeout)
	var a batchAnswer
	if err == nil {
		a, err = f.await(ctx, timeout)
	}
	if err == nil {
		err = f.check(a, len(f.Messages))
	}
	if err != nil {
		f.abandon()
		return 0, fmt.Errorf("a batch of %d: %w", len(f.Messages), err)
	}
	return a.Sequence, nil
}

// sendAll sends the messages until the server reports that the batch has failed.
func (f *fastBatch) sendAll(ctx context.Context, timeout time.Duration) error {
	for i := range f.Messages {
		if f.Confirm != nil && f.Confirm(i) {
			if err := f.confirm(ctx, i, timeout); err != nil {
				return fmt.Errorf("the first %d: %w", i, err)
			}
		}
		if len(f.outcome) > 0 {
			return nil
		}
		if err := f.send(ctx, i); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return nil
}

// confirm waits until the server has stored the first n messages.
func (f *fastBatch) confirm(ctx context.Context, n int, timeout time.Duration) error {
	if err := f.signal(n, opPing); err != nil {
		return err
	}
	a, err := f.await(ctx, timeout)
	switch {
	case err != nil:
		return err
	case a.Type == "ack" && !f.lost():
		return nil
	}
	return cmp.Or(f.check(a, n), errConnectionLost)
}

// signal sends an operation without a message. If the server hasn't received message number, counted from 1, the operation ends
// the batch.
func (f *fastBatch) signal(number int, op string) error {
	return f.nc.PublishMsg(&nats.Msg{Subject: f.Messages[0].Subject, Reply: f.reply(number, op)})
}

// send sends message i, counted from 0.
func (f *fastBatch) send(ctx context.Context, i int) error {
	if late(ctx) {
		return context.DeadlineExceeded
	}
	op := opAppend
	switch i {
	case len(f.Messages) - 1:
		op = opCommit
	case 0:
		op = opStart
	}
	m := f.Messages[i]
	return f.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: f.reply(i+1, op), Header: m.Header, Data: m.Data})
}

// reply returns the reply subject of message number, counted from 1, with operation op.
func (f *fastBatch) reply(number int, op string) string {
	var digits [20]byte
	return f.prefix + string(strconv.AppendInt(digits[:0], int64(number), 10)) + "." + op + batchSuffix
}

// abandon ends the batch at the server, unless the server has no space for messages. Otherwise the server might keep the batch
// open for some seconds and store messages in transit. The request's number is higher than any message's, so it ends the batch in
// any state.
func (f *fastBatch) abandon() {
	if !f.alone() {
		_ = f.signal(math.MaxInt32, opCommitEnd) // an error is harmless, because the server itself ends the batch later
	}
}

// lookEvery is the interval between await's checks of the connection.
const lookEvery = 100 * time.Millisecond

// await waits for the server's answer to the batch.
func (f *fastBatch) await(ctx context.Context, timeout time.Duration) (batchAnswer, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	over := time.NewTimer(timeout)
	defer over.Stop()
	for pinged := !f.alone(); ; {
		select {
		case a := <-f.outcome:
			return a, nil
		case <-ctx.Done():
			return batchAnswer{}, ctx.Err()
		case <-over.C:
			return batchAnswer{}, fmt.Errorf("the server didn't answer within %v", timeout)
		case <-look.C:
			if f.lost() {
				return batchAnswer{}, errConnectionLost
			}
			if !pinged {
				// The server answers in order, so an answer to the message precedes the answer to the ping. The ping ends another
				// owner's open batch with the same id.
				pinged = f.signal(math.MaxInt32, opPing) == nil
			}
		}
	}
}

var errConnectionLost = errors.New("the connection was lost during the batch")

// lost reports whether the connection was lost since the batch began.
func (f *fastBatch) lost() bool {
	return !f.nc.IsConnected() || f.nc.Stats().Reconnects != f.reconnects
}

// check returns nil if the answer a confirms that n messages are stored.
//
// Sequence 0 means that the stream already knows the id of every message. With replicas, such a message might not be replicated
// yet, and the next leader might not have it. Only a single publish shows whether it is replicated. After a reconnect, check
// returns an error, because the server's separate report of a message that it couldn't store may be lost with the connection.
func (f *fastBatch) check(a batchAnswer, n int) error {
	switch {
	case a.failed != nil:
		return a.failed
	case a.Error != nil:
		return a.Error
	case a.Type == "gap":
		return ErrBatchEnded
	case a.Type == "ack" && !f.lost():
		return ErrBatchStuck
	case a.Count != n:
		return fmt.Errorf("the server confirms %d messages", a.Count)
	case a.Sequence == 0:
		return fmt.Errorf("%w: all %d messages", errKnown, n)
	case f.nc.Stats().Reconnects != f.reconnects:
		return errConnectionLost
	}
	return nil
}

var errKnown = errors.New("the stream already knows every message")

// late reports whether the deadline of ctx has passed, even if ctx's timer is late.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
