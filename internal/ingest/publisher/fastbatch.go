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

// fastBatches sends fast batches on one connection, and passes the server's answers to their batches.
//
// The reply subject of a message identifies its batch and its position (ADR-50 of nats-architecture-and-design):
//
//	<inbox>.<id>.<flow>.<gap mode>.<number in the batch>.<operation>.$FI
//
// The publisher in jetstreamext is unsuitable because it chooses the ids of batches. Commit markers need ids that the next owner of
// a partition can derive (adr/0046). That publisher also waits for an answer before it sends the second message. The wait isn't
// necessary, because a server that doesn't begin the batch refuses the other messages too.
//
// The server ends a batch when it refuses a message, with one exception. If another stream takes the last space between the
// server's two checks for space, the server reports an error and continues with the next message. So a failed batch may be stored
// with gaps. If the refused message was the last one that the server counted, the server keeps the batch open without a limit. The
// server then answers no message with that batch's id.
type fastBatches struct {
	nc    *nats.Conn
	inbox string

	mu     sync.Mutex
	number uint64
	open   map[string]*fastBatch // by fastBatch.token
	sub    *nats.Subscription    // receives the server's answers; nil before the first batch
}

func newFastBatches(nc *nats.Conn) *fastBatches {
	return &fastBatches{nc: nc, inbox: nc.NewInbox(), open: make(map[string]*fastBatch)}
}

// The operations in reply subjects.
const (
	opStart     = "0"
	opAppend    = "1"
	opCommit    = "2" // the message is the last one of the batch
	opCommitEnd = "3" // the batch ended before this message, which isn't stored
	opPing      = "4" // the server reports its progress
)

// Fields of reply subjects. batchFlow lets the server report progress rarely, because the size of a batch bounds the messages in
// flight. With batchGap, the server ends a batch if a message is missing.
const (
	batchFlow   = "65535"
	batchGap    = "fail"
	batchSuffix = ".$FI"
)

// fastBatch is one batch in flight to the server.
type fastBatch struct {
	*fastBatches
	token      string // identifies the batch on this connection; follows the inbox in reply subjects
	prefix     string // prefix of the batch's reply subjects
	reconnects uint64 // the connection's count of reconnects at the start of the batch
	alone      bool   // whether the batch has only one message, which doesn't leave the batch open
	outcome    chan batchAnswer
}

// batchAnswer is an answer of the server to a batch. Type is "" when the batch has ended, "ack" for progress or as the answer to a
// ping, "gap" if messages are missing, and "err" if the server refuses a message.
type batchAnswer struct {
	Type     string              `json:"type"` // see batchAnswer
	Sequence uint64              `json:"seq"`  // stream sequence of the last message; with other types, the number of a message in the batch
	Count    int                 `json:"count"`
	Error    *jetstream.APIError `json:"error"`

	failed error // the answer is invalid, or no stream has the subject
}

// FastBatch is a batch for StoreFast.
type FastBatch struct {
	// ID identifies the batch among all batches of the stream. It has at most 64 characters, which must be valid in a subject's
	// token. An empty ID means a new one.
	ID string

	Messages []*nats.Msg

	// Confirm reports whether message i must not be sent before the server has confirmed all earlier messages. A nil Confirm
	// reports false.
	Confirm func(i int) bool
}

// ErrBatchEnded means that the server has ended a batch because a message wasn't the next one. Either an earlier message is
// missing, or another batch has the same id.
var ErrBatchEnded = errors.New("the server has ended the batch: a message was not the next one")

// ErrBatchStuck means that the server neither answers nor stores messages with the id of a batch.
var ErrBatchStuck = errors.New("the server has ended another batch with the same id, and waits for a message that it could not store")

// begin prepares a batch of n messages. An empty id means a new one.
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

// answered passes an answer to its batch, unless the answer only reports progress. The batch keeps the first answer, because after
// the refusal of a message, the server also sends an answer about earlier messages.
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

// end removes the batch, so that later answers are ignored.
func (f *fastBatch) end() {
	f.mu.Lock()
	delete(f.open, f.token)
	f.mu.Unlock()
}

// publish stores a batch and returns the stream sequence of its last message. It returns an error unless all messages are known to
// be stored. timeout applies to each answer of the server.
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

// ping requests the progress of the batch. If the server doesn't have the message with that number yet, the ping ends the batch.
func (f *fastBatch) ping(first *nats.Msg, number int) error {
	return f.nc.PublishMsg(&nats.Msg{Subject: first.Subject, Reply: f.reply(number, opPing)})
}

// send sends message i of n. i is counted from 0.
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

// reply returns the reply subject of a message. number is counted from 1.
func (f *fastBatch) reply(number int, op string) string {
	var digits [20]byte
	return f.prefix + string(strconv.AppendInt(digits[:0], int64(number), 10)) + "." + op + batchSuffix
}

// abandon ends the batch at the server. Otherwise the server might keep the batch open for some seconds, and store messages in
// transit. The request has a number that no message has, so the server ends the batch in any state, unless it has no space for
// messages.
func (f *fastBatch) abandon(m *nats.Msg) {
	if !f.alone {
		// An error is harmless, because the server itself ends the batch later.
		_ = f.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: f.reply(math.MaxInt32, opCommitEnd)})
	}
}

// lookEvery is the interval at which a batch that waits for its answer checks the connection.
const lookEvery = 100 * time.Millisecond

// await waits for the server's answer to the batch. first is the batch's first message.
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
				// The server answers in order, so an answer to the message precedes the answer to the ping. The ping ends a batch
				// of another owner that is still open.
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
// Sequence 0 means that the stream already knows the id of every message. With replicas, such a message may not be replicated yet,
// and the next leader might not have it. Only single publishes distinguish the two cases. Also, the server reports a failure to
// store a message only once, outside the acknowledgement. That report may be lost with the connection.
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
