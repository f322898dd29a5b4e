package resend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"millrace/internal/cliclient"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

const (
	// ackWait is the time during which only the run that received a dead letter may send it.
	ackWait = time.Minute

	// maxHeld is the maximum number of unsent dead letters that the consumer tracks. Each one takes about 100 bytes of
	// memory on the server, and as much in a run.
	maxHeld = 1_000_000

	// atOnce and bytesAtOnce limit one request for headers. A message has at most 64 KiB of headers.
	atOnce      = 1000
	bytesAtOnce = 8 << 20

	// confirmations is the maximum number of attempts to acknowledge a dead letter.
	confirmations = 3
)

// queue is the consumer of dead letters. It delivers headers only.
type queue struct {
	js       jetstream.JetStream
	stream   string
	consumer jetstream.Consumer
	wait     time.Duration     // AckWait of the consumer
	held     map[uint64]string // reply subject of each message that this run leaves to later runs, by sequence
}

// openQueue opens the durable consumer with the given name. If the consumer doesn't exist, openQueue creates it, or a
// temporary consumer for a dry run. subjects are the filters for dead letters.
func openQueue(ctx context.Context, js jetstream.JetStream, stream, name string, subjects []string, dry bool) (*queue, error) {
	c := jetstream.ConsumerConfig{
		Name: name, Durable: name, Description: "worker retry: an acknowledged dead letter was sent again", DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: maxHeld, FilterSubjects: subjects, HeadersOnly: true,
	}
	q := &queue{js: js, stream: stream, held: map[uint64]string{}}
	var err error
	if q.consumer, err = js.Consumer(ctx, stream, name); errors.Is(err, jetstream.ErrConsumerNotFound) {
		if dry {
			c.Name, c.Durable, c.AckPolicy, c.AckWait, c.MaxAckPending = name+"-"+nuid.Next(), "", jetstream.AckNonePolicy, 0, 0
			c.InactiveThreshold, c.MemoryStorage, c.Replicas = cliclient.Unused, true, 1
		}
		q.consumer, err = js.CreateConsumer(ctx, stream, c)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", name, stream, err)
	}
	got := q.consumer.CachedInfo().Config
	if got.AckPolicy != c.AckPolicy && !dry || !got.HeadersOnly || got.DeliverSubject != "" {
		return nil, fmt.Errorf("consumer %s of stream %s isn't one of worker retry: rename it", name, stream)
	}
	q.wait = cmp.Or(got.AckWait, ackWait)
	return q, nil
}

// remembers reports whether the consumer tracks sent dead letters. The temporary consumer of a dry run doesn't.
func (q *queue) remembers() bool {
	return q.consumer.CachedInfo().Config.AckPolicy == jetstream.AckExplicitPolicy
}

// isFull reports whether the consumer has reached its limit of unacknowledged messages. The server then delivers no
// further messages. others is the number of messages that other runs hold.
func (q *queue) isFull(others int) bool {
	limit := q.consumer.CachedInfo().Config.MaxAckPending
	return q.remembers() && limit > 0 && len(q.held)+others >= limit
}

// fetch returns the next messages, at most n. It waits at most wait for them. If wait is 0, it returns only available
// messages. It omits messages that the run already holds.
//
// A consumer with replicas may have no leader for a while. fetch waits for one, at most for publishPatience.
func (q *queue) fetch(ctx context.Context, n int, wait time.Duration) (came []*pull.Message, err error) {
	for began, attempt := time.Now(), 1; ; attempt++ {
		came, err = q.tryFetch(n, wait)
		if !errors.Is(err, nats.ErrNoResponders) || time.Since(began) > publishPatience || !retry.Sleep(ctx, retry.Delay(attempt)) {
			return came, err
		}
	}
}

func (q *queue) tryFetch(n int, wait time.Duration) (came []*pull.Message, err error) {
	request := pull.Request{API: jsapi.Of(q.js), Stream: q.stream, Consumer: q.consumer.CachedInfo().Name, Bytes: bytesAtOnce}
	_, err = pull.Fetch(q.js.Conn(), request, n, wait, func(m *pull.Message) {
		sequence := sequenceOf(m)
		if q.held[sequence] != "" {
			q.held[sequence] = m.Reply() // redelivered, because AckWait has passed
		} else if sequence > 0 {
			came = append(came, m)
		}
	})
	return came, err
}

// isLate reports whether messages that were requested at the time asked may soon be delivered to another run.
func (q *queue) isLate(asked time.Time) bool { return q.remembers() && time.Since(asked) > q.wait/3 }

// giveBack returns a message to the server for redelivery. If the request is lost, the server redelivers the message
// after AckWait.
func (q *queue) giveBack(m *pull.Message) {
	if q.remembers() {
		_ = m.Nak()
	}
}

// hold leaves a message to later runs.
func (q *queue) hold(m *pull.Message) { q.held[sequenceOf(m)] = m.Reply() }

// release gives all held messages back.
func (q *queue) release() error {
	if !q.remembers() {
		return nil
	}
	for _, reply := range q.held {
		if err := q.js.Conn().Publish(reply, []byte("-NAK")); err != nil {
			return err
		}
	}
	return q.js.Conn().FlushTimeout(cliclient.RequestTimeout)
}

// state returns the number of messages that were never delivered, and the number of messages that other runs hold.
func (q *queue) state(ctx context.Context) (waiting uint64, others int, err error) {
	info, err := q.consumer.Info(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("consumer %s of stream %s: %w", q.consumer.CachedInfo().Name, q.stream, err)
	}
	if !q.remembers() {
		return info.NumPending, 0, nil
	}
	return info.NumPending, max(info.NumAckPending-len(q.held), 0), nil
}

// acknowledge marks a dead letter as sent and waits for the server's confirmation.
func (q *queue) acknowledge(ctx context.Context, m *pull.Message) (err error) {
	for range confirmations {
		once, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
		err = m.DoubleAck(once)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("the server doesn't confirm that it was sent, so a later run may send it again: %w", err)
}

// read returns a message of the stream, or nil if the stream no longer has it.
func (q *queue) read(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	m, err := jsapi.Next(ctx, q.js, q.stream, sequence, ">")
	if err != nil || m == nil || m.Sequence != sequence {
		return nil, err
	}
	return m, nil
}

// sequenceOf returns the stream sequence of a message, or 0 if the message has no valid metadata.
func sequenceOf(m *pull.Message) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}

// deadLetters returns the state of the stream of dead letters. It returns an error if the stream removes acknowledged
// messages.
func deadLetters(ctx context.Context, js jetstream.JetStream, t topology.Topology) (*jetstream.StreamInfo, error) {
	name, err := topology.DeadLetterStream(ctx, js, t)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("no stream stores dead letters, on %s.>: check MILLRACE_DEADLETTER_PREFIX and MILLRACE_SUBJECTS", t.DeadLetterPrefix)
	}
	info, err := cliclient.StreamInfo(ctx, js, name)
	if err != nil {
		return nil, err
	}
	if info.Config.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("stream %s has the retention %v, which removes a dead letter when it is acknowledged, so this command doesn't read it: "+
			"nats stream edit %s --retention limits", name, info.Config.Retention, name)
	}
	return info, nil
}
