package broker

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/operator"
)

// sampleBytes is the number of payload bytes for which a check computes the reference. The reference takes a second for
// a few megabytes.
const sampleBytes = 256 << 10

// expected describes the results of a round.
type expected struct {
	load
	stream string              // the input stream
	ops    []operator.Operator // nil for a worker that computes nothing
}

// check reads every result back. Each input must have exactly one, with its ID and on its subject. A sample of the
// bodies is compared with the reference. If the worker computes nothing, every body is compared.
func (s *server) check(ctx context.Context, want expected) error {
	stream, err := s.js.Stream(ctx, s.out)
	if err != nil {
		return err
	}
	stored := int(stream.CachedInfo().State.Msgs)
	results, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read results back: %w", err)
	}
	messages, err := results.Messages(pullBounds(s.nc))
	if err != nil {
		return fmt.Errorf("read results back: %w", err)
	}
	defer messages.Stop()
	seen, compare := make([]bool, want.n), want.comparer()
	for range stored {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read results back: %w", err)
		}
		if err := want.result(m, seen, compare); err != nil {
			return fmt.Errorf("WRONG RESULT: %w", err)
		}
	}
	if stored != want.n {
		return fmt.Errorf("WRONG RESULT: the result stream holds %d messages for %d inputs", stored, want.n)
	}
	return nil
}

// comparer returns a function that checks the body of the result of message i, if it belongs to the sample.
func (want expected) comparer() func(i int, got []byte) error {
	if want.ops != nil {
		return want.checker(want.ops, want.n)
	}
	null := want.null().body
	return func(_ int, got []byte) error {
		if !bytes.Equal(got, null) {
			return fmt.Errorf("the body is %q, want %q", got, null)
		}
		return nil
	}
}

// result checks a message and records its input in seen. compare checks its body.
func (want expected) result(m jetstream.Msg, seen []bool, compare func(i int, got []byte) error) error {
	h := m.Headers()
	sequence, err := strconv.Atoi(h.Get(results.HeaderSequence))
	i := sequence - 1
	switch {
	case err != nil || i < 0 || i >= want.n:
		return fmt.Errorf("a message on %s is for no input: %v", m.Subject(), h)
	case h.Get(results.HeaderReason) != "":
		return fmt.Errorf("input %d became a dead letter: %s: %s", sequence, h.Get(results.HeaderReason), h.Get(results.HeaderError))
	case seen[i]:
		return fmt.Errorf("input %d has two results", sequence)
	case !strings.HasPrefix(h.Get(jetstream.MsgIDHeader), messageID(want.stream, uint64(sequence))):
		return fmt.Errorf("the result of input %d has the id %q", sequence, h.Get(jetstream.MsgIDHeader))
	case m.Subject() != mapped(subject(i)):
		return fmt.Errorf("the result of input %d is on %s, want %s", sequence, m.Subject(), mapped(subject(i)))
	}
	seen[i] = true
	if err := compare(i, m.Data()); err != nil {
		return fmt.Errorf("input %d of %d bytes: %w", sequence, len(want.load.message(nil, i)), err)
	}
	return nil
}
