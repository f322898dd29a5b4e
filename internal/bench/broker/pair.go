package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// pair is an input stream with its consumers, a result stream, and the stream of dead letters. Every round has a new pair.
//
// The names of its streams and the first token of its subjects contain the pair's random name. The pair shares no
// stream with other users of the server, an interrupted run, or another pair.
type pair struct {
	*server
	kind kind // kind of the worker
	name string
}

// The names of streams and the first tokens of subjects begin with these prefixes and end with the name of the pair.
const (
	streamPrefix = "MILLRACE_BENCH_"
	inStream     = streamPrefix + "IN_"
	outStream    = streamPrefix + "OUT_"

	inPrefix   = "millrace-bench-in-"
	outPrefix  = "millrace-bench-out-"
	deadPrefix = "millrace-bench-dead-"

	commitPrefix = "millrace-bench-commits-"
)

// partitions is the number of partitions of exclusive delivery. Each has one consumer.
const partitions = 8

const (
	// ackWait is longer than the time between the delivery of any payload and its acknowledgement.
	ackWait = 5 * time.Minute

	// maxAckPending is larger than the number of messages that any worker holds.
	maxAckPending = 1 << 20
)

// newName returns a random name for pairs.
func newName() string { return rand.Text() }

// newPair creates the streams of a pair as MILLRACE_PROVISION does.
func (s *server) newPair(ctx context.Context, k kind, name string) (*pair, error) {
	p := &pair{server: s, kind: k, name: name}
	if err := topology.Provision(ctx, s.js, p.topology(), quiet); err != nil {
		return nil, fmt.Errorf("create streams: %w: the user needs permission to create streams, and space for the payloads of a round (at most %d MiB; a smaller --seconds needs less)", err, maxBytes>>20)
	}
	return p, nil
}

// topology returns the topology of a Millrace worker between the two streams.
func (p *pair) topology() topology.Topology {
	t := topology.Topology{
		Stream: inStream + p.name, Subjects: []string{inPrefix + p.name + ".>"}, Consumer: "millrace-bench", API: p.api,
		ResultStream: outStream + p.name, ResultPrefix: outPrefix + p.name, DeadLetterPrefix: deadPrefix + p.name,
		ExactlyOnce: topology.Off, ResultIDs: true, Kept: topology.Kept{Replicas: 1},
		Exclusive: p.kind.exclusive, Partitions: partitions, MaxDeliver: 10,
		Storage: p.storage, AckWait: ackWait, MaxAckPending: maxAckPending,
	}
	if p.kind.exactlyOnce {
		t.ExactlyOnce, t.CommitPrefix = topology.Required, commitPrefix+p.name
	}
	if operator.HasState(p.kind.ops) {
		t.Stateful = p.kind.ops[0].Name()
	}
	return t
}

// removeExcept deletes the streams and consumers of all pairs except those whose names begin with kept. If kept is empty, it
// deletes the streams and consumers of all pairs.
func (s *server) removeExcept(ctx context.Context, kept string) error {
	var ours []string
	there := s.js.StreamNames(ctx)
	for name := range there.Name() {
		if strings.HasPrefix(name, streamPrefix) && (kept == "" || !strings.Contains(name, kept)) {
			ours = append(ours, name)
		}
	}
	if err := there.Err(); err != nil {
		return fmt.Errorf("list the server's streams: %w: enable JetStream on the server", err)
	}
	for _, name := range ours {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	return nil
}

// subject returns the subject of input i. The server hashes the subject to select a partition. Each of the last digits
// 0 to 7 results in a different partition.
func (p *pair) subject(i int) string { return inPrefix + p.name + "." + strconv.Itoa(i%partitions) }

// published returns the subject that an input was published under. stored is its subject in the stream. In a
// partitioned stream, the partition's number precedes the published subject.
func published(stored string) string {
	if strings.HasPrefix(stored, inPrefix) {
		return stored
	}
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// mapped returns the subject of the result of an input that was published under the given subject.
func mapped(subject string) string { return outPrefix + strings.TrimPrefix(subject, inPrefix) }

// messageID returns the beginning of a result's ID. The server stores only one message per ID. The ID ends with the
// time when the input was stored, in nanoseconds.
func (p *pair) messageID(sequence uint64) string {
	return inStream + p.name + ":" + strconv.FormatUint(sequence, 10) + ":"
}

const (
	// fillWindow is the maximum number of unconfirmed messages while a stream is filled.
	fillWindow = 4096

	// fillBytes is the maximum total size of unconfirmed messages in bytes.
	fillBytes = 32 << 20

	// answerTimeout is the maximum response time of the server. A slower response fails the round.
	answerTimeout = time.Minute
)

// fill stores every message of l in the input stream, in order. It publishes messages at the interval of l, or as fast
// as possible if the interval is 0. A late message doesn't delay later messages.
func (p *pair) fill(ctx context.Context, l load) error {
	return p.publish(ctx, l.bytes(), func(yield func(*nats.Msg, error) bool) {
		start := time.Now()
		for i := range l.n {
			err := pause(ctx, time.Until(start.Add(time.Duration(i)*l.every)))
			if !yield(&nats.Msg{Subject: p.subject(i), Data: l.message(i)}, err) {
				return
			}
		}
	})
}

// publish stores messages in order until messages yields an error. bytes is the approximate size of a message.
func (p *pair) publish(ctx context.Context, bytes int, messages iter.Seq2[*nats.Msg, error]) error {
	failed := make(chan error, 1)
	js, err := p.api.New(p.nc,
		jetstream.WithPublishAsyncMaxPending(min(fillWindow, max(fillBytes/bytes, 1))),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default: // the first error is enough
			}
		}))
	if err != nil {
		return err
	}
	for m, err := range messages {
		if err != nil {
			return err
		}
		if limit := p.nc.MaxPayload() - maxHeader; int64(len(m.Data)) > limit {
			return bench.Unable("the server accepts messages of at most %d bytes: raise its max_payload", limit)
		}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(answerTimeout)); err != nil {
			return fmt.Errorf("fill the stream: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("fill the stream: %w", err)
	default:
		return nil
	}
}

// pause waits for d, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
