package broker

import (
	"bytes"
	"context"
	"errors"
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

	guarantee guarantee
}

// check reads every result and commit marker back. Each input must have exactly one result, with its ID and on its subject, and no dead
// letter. A sample of the bodies is compared with the reference. If the worker computes nothing, every body is compared.
func (s *server) check(ctx context.Context, want expected) error {
	if err := s.checkDeadLetters(ctx); err != nil {
		return err
	}
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
	seen, compare, last, found := make([]bool, want.n), want.comparer(), markers{}, 0
	for range stored {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read results back: %w", err)
		}
		if isMarker(m.Subject()) {
			last[m.Subject()] = m.Data()
			continue
		}
		found++
		if err := want.result(m, seen, compare); err != nil {
			return fmt.Errorf("WRONG RESULT: %w", err)
		}
	}
	if found != want.n {
		return fmt.Errorf("WRONG RESULT: the result stream holds %d results for %d inputs", found, want.n)
	}
	return s.checkMarkers(ctx, want.guarantee, last)
}

// checkDeadLetters returns an error if there is a dead letter.
func (s *server) checkDeadLetters(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.dead())
	if err != nil {
		return err
	}
	m, err := stream.GetLastMsgForSubject(ctx, deadPrefix+".>")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for dead letters: %w", err)
	}
	return fmt.Errorf("WRONG RESULT: input %s became a dead letter: %s: %s", m.Header.Get(results.HeaderSequence),
		m.Header.Get(results.HeaderReason), m.Header.Get(results.HeaderError))
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
	named, other := want.guarantee.idHeader()
	switch {
	case err != nil || i < 0 || i >= want.n:
		return fmt.Errorf("a message on %s is for no input: %v", m.Subject(), h)
	case seen[i]:
		return fmt.Errorf("input %d has two results", sequence)
	case !strings.HasPrefix(h.Get(named), messageID(want.stream, uint64(sequence))) || h.Get(other) != "":
		return fmt.Errorf("the result of input %d has the id %q in %s, and %q in %s", sequence, h.Get(named), named, h.Get(other), other)
	case m.Subject() != mapped(subject(i)):
		return fmt.Errorf("the result of input %d is on %s, want %s", sequence, m.Subject(), mapped(subject(i)))
	}
	seen[i] = true
	if err := compare(i, m.Data()); err != nil {
		return fmt.Errorf("input %d of %d bytes: %w", sequence, len(want.load.message(nil, i)), err)
	}
	return nil
}
