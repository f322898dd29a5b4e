package publisher

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

// fastBatches sends fast batches on one connection, and gives each one the server's answers to it.
//
// A message of a fast batch says in its reply subject where it belongs (ADR-50 of nats-architecture-and-design):
//
//	<inbox>.<id>.<flow>.<gap mode>.<number in the batch>.<operation>.$FI
//
// jetstreamext has a publisher for such batches. It chooses their ids, and commit markers need ids that the next owner of a partition can
// derive (adr/0046). It also waits for an answer before it sends the second message. That isn't necessary: if the server doesn't begin the batch,
// it refuses the other messages as well.
//
// The server ends a batch when it refuses a message, with one exception: if another stream takes the last room between its two checks for room, it
// reports an error and goes on with the next message. So a batch that failed may be stored with gaps. If that was the
// last message that it counted, it keeps the batch for ever, and leaves all messages with its id unanswered.
type fastBatches struct {
	nc    *nats.Conn
	inbox string

	mu     sync.Mutex
	number uint64
	open   map[string]*fastBatch // by the token of the reply subject that follows the inbox
	sub    *nats.Subscription    // receives the answers; nil before the first batch
}

func newFastBatches(nc *nats.Conn) *fastBatches {
	return &fastBatches{nc: nc, inbox: nc.NewInbox(), open: make(map[string]*fastBatch)}
}

// Operations of a message.
const (
	opStart     = "0"
	opAppend    = "1"
	opCommit    = "2" // the message is the last one
	opCommitEnd = "3" // the batch ended with the message before; this one isn't stored
	opPing      = "4" // the server reports its progress
)

// Fields of reply subjects. With batchFlow the server may report its progress seldom: nothing waits for that, because the size of a batch
// bounds the messages in flight. With batchGap it ends the batch if a message is missing.
const (
	batchFlow   = "65535"
	batchGap    = "fail"
	batchSuffix = ".$FI"
)

// fastBatch is one batch in flight to the server.
type fastBatch struct {
	*fastBatches
	token      string // identifies it on this connection
	prefix     string // of its reply subjects
	reconnects uint64 // of the connection, before the batch began
	alone      bool   // it has one message, which doesn't leave the batch open
	outcome    chan batchAnswer
}

// batchAnswer is an answer of the server: its report about the whole batch, or why it has ended the batch.
type batchAnswer struct {
	Type     string              `json:"type"` // "": the batch has ended; "ack": progress, or the answer to a ping; "gap": messages are missing; "err": the server refuses one
	Sequence uint64              `json:"seq"`  // of the last message in the stream; in other types the number of a message in the batch
	Count    int                 `json:"count"`
	Error    *jetstream.APIError `json:"error"`

	failed error // the answer can't be read, or it says that no stream has the subject
}

// FastBatch is a batch for StoreFast.
type FastBatch struct {
	// ID identifies the batch among all batches of the stream, in at most 64 characters that a subject's token may have. Empty: a new one.
	ID string

	Messages []*nats.Msg

	// Confirm reports whether message i is sent only when the server has confirmed that it has stored those before it. nil: none is.
	Confirm func(i int) bool
}

// ErrBatchEnded means that the server has ended a batch because it got a message that isn't the next one: one before it is missing, or another
// batch has the same id.
var ErrBatchEnded = errors.New("the server has ended the batch: a message was not the next one")

// ErrBatchStuck means that the server leaves messages with the id of a batch unanswered. It stores none of them any more.
var ErrBatchStuck = errors.New("the server has ended another batch with the same id, and waits for a message that it could not store")

// begin prepares a batch of n messages. An empty id stands for a new one.
func (s *fastBatches) begin(id string, n int) (*fastBatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sub == nil {
		sub, err := s.nc.Subscribe(s.inbox+".>", s.answered)
		if err != nil {
			return nil, fmt.Errorf("subscribe to the answers to batches: %w", err)
		}
		s.sub = sub
	}
	s.number++
	f := &fastBatch{
		fastBatches: s, token: strconv.FormatUint(s.number, 36), reconnects: s.nc.Stats().Reconnects, alone: n == 1, outcome: make(chan batchAnswer, 1),
	}
	if id == "" {
		id = s.inbox[strings.LastIndexByte(s.inbox, '.')+1:] + f.token
	}
	f.prefix = strings.Join([]string{s.inbox, f.token, id, batchFlow, batchGap, ""}, ".")
	s.open[f.token] = f
	return f, nil
}

// answered passes an answer to its batch, unless it is only about progress. The first one counts: if a message is refused, an answer about the messages
// before it follows.
func (s *fastBatches) answered(m *nats.Msg) {
	token, _, _ := strings.Cut(m.Subject[len(s.inbox)+1:], ".")
	s.mu.Lock()
	f := s.open[token]
	s.mu.Unlock()
	if f == nil {
		return // given up
	}
	a, toPing := readAnswer(m), strings.HasSuffix(m.Subject, "."+opPing+batchSuffix)
	switch {
	case a.Type == "ack" && !toPing, a.Type == "gap" && toPing && f.alone:
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

// end stops waiting for answers to the batch.
func (f *fastBatch) end() {
	f.mu.Lock()
	delete(f.open, f.token)
	f.mu.Unlock()
}

// publish stores a batch and returns the stream sequence of its last message. It returns no error only if all of them are stored. timeout applies to
// each answer of the server.
func (f *fastBatch) publish(ctx context.Context, b FastBatch, timeout time.Duration) (sequence uint64, err error) {
	defer f.end()
	msgs := b.Messages
	for i, m := range msgs {
		if b.Confirm != nil && b.Confirm(i) {
			if err := f.confirm(ctx, i, msgs[0], timeout); err != nil {
				f.abandon(m)
				return 0, fmt.Errorf("the first %d of a batch of %d: %w", i, len(msgs), err)
			}
		}
		if len(f.outcome) > 0 {
			break // the batch has failed
		}
		if err := f.send(ctx, i, len(msgs), m); err != nil {
			f.abandon(m)
			return 0, fmt.Errorf("message %d of a batch of %d: %w", i+1, len(msgs), err)
		}
	}
	a, err := f.await(ctx, msgs[0], timeout)
	if err == nil {
		err = f.check(a, len(msgs))
	}
	if err != nil {
		f.abandon(msgs[0])
		return 0, fmt.Errorf("a batch of %d: %w", len(msgs), err)
	}
	return a.Sequence, nil
}

// confirm waits until the server has stored the first n messages.
func (f *fastBatch) confirm(ctx context.Context, n int, first *nats.Msg, timeout time.Duration) error {
	if err := f.ping(first, n); err != nil {
		return err
	}
	a, err := f.await(ctx, first, timeout)
	switch {
	case err != nil:
		return err
	case a.Type == "ack" && !f.lost():
		return nil
	}
	return cmp.Or(f.check(a, n), errConnectionLost)
}

// ping asks for the progress of the batch. If the server doesn't have the message with that number yet, the ping ends the batch.
func (f *fastBatch) ping(first *nats.Msg, number int) error {
	return f.nc.PublishMsg(&nats.Msg{Subject: first.Subject, Reply: f.reply(number, opPing)})
}

// send sends message i of n.
func (f *fastBatch) send(ctx context.Context, i, n int, m *nats.Msg) error {
	if late(ctx) {
		return context.DeadlineExceeded
	}
	op := opAppend
	switch i {
	case n - 1:
		op = opCommit
	case 0:
		op = opStart
	}
	return f.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: f.reply(i+1, op), Header: m.Header, Data: m.Data})
}

// reply returns the reply subject of a message. The first one has the number 1.
func (f *fastBatch) reply(number int, op string) string {
	var digits [20]byte
	return f.prefix + string(strconv.AppendInt(digits[:0], int64(number), 10)) + "." + op + batchSuffix
}

// abandon tells the server that the batch has ended. Otherwise it might keep it open for some seconds, and store messages that are still on their
// way. The number is that of no message, so the server ends the batch wherever it is, unless it has no room for any message.
func (f *fastBatch) abandon(m *nats.Msg) {
	if !f.alone {
		// An error changes nothing: the server ends the batch by itself, later.
		_ = f.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: f.reply(math.MaxInt32, opCommitEnd)})
	}
}

// lookEvery is how often a batch that waits for its answer checks the connection.
const lookEvery = 100 * time.Millisecond

// await waits until the batch has ended. first is its first message.
func (f *fastBatch) await(ctx context.Context, first *nats.Msg, timeout time.Duration) (batchAnswer, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	over := time.NewTimer(timeout)
	defer over.Stop()
	for pinged := !f.alone; ; {
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
				// The server answers in order: the message's own answer comes first, if there is one. A batch of another owner that is
				// still open ends.
				pinged = f.ping(first, math.MaxInt32) == nil
			}
		}
	}
}

var errConnectionLost = errors.New("the connection was lost during the batch")

// lost reports whether the connection was lost since the batch began.
func (f *fastBatch) lost() bool {
	return !f.nc.IsConnected() || f.nc.Stats().Reconnects != f.reconnects
}

// check returns nil if an answer confirms that n messages are stored.
//
// Sequence 0 means that the stream already knows the id of every message. With replicas, such a message may not have
// reached them yet, and the next leader might not have it. Only single publishes distinguish the two cases. Also, the
// server reports only once, outside the acknowledgement, that it could not store a message. If the connection was
// lost in between, that report may have been lost too.
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

// errKnown means that the stream already knows every message of a batch.
var errKnown = errors.New("the stream already knows every message")
