package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"millrace/internal/bench"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
)

// worker is a measured worker of one round.
type worker interface {
	// prepare creates connections and pipelines before the measurement. The streams exist. If l.every is 0, each input
	// stream contains all messages of l.
	prepare(ctx context.Context, p pairs, l load) error

	// run processes every message of l in each input stream. It returns when each result is stored and the server has received each input's
	// acknowledgement.
	run(ctx context.Context, l load) error

	// close frees the resources of prepare, even if prepare has failed.
	close() error

	// batches returns the number of batches of results. Call it after close.
	batches() int64
}

// roundLimit is the maximum duration of a round.
const roundLimit = 5 * time.Minute

type roundFigures struct {
	took    time.Duration // time from before the first delivery until everything is acknowledged
	cpu     time.Duration // processor time of the process in that time
	batches int64         // number of batches of results

	// latencies holds the seconds from storing each input to storing its result. It is nil if all inputs were stored
	// beforehand.
	latencies []float64
}

// round creates the pairs of streams of kind k, lets a worker process l in each, and checks the stored results.
func (s *server) round(ctx context.Context, k kind, l load) (r roundFigures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("a round takes longer than %v: it is stuck, or --seconds is too large", roundLimit))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	p, err := s.newPairs(ctx, k)
	if err != nil {
		return r, err
	}
	if l.every == 0 {
		if err := p.fill(ctx, l); err != nil {
			return r, err
		}
	}
	w := k.make()
	r, err = p.timed(ctx, w, l)
	if err := errors.Join(err, w.close()); err != nil {
		return r, err
	}
	r.batches = w.batches()
	for _, one := range p {
		latencies, err := one.check(ctx, k.ops, l)
		if err != nil {
			return r, err
		}
		r.latencies = append(r.latencies, latencies...)
	}
	return r, nil
}

// timed measures the time that w takes to process l.
func (p pairs) timed(ctx context.Context, w worker, l load) (r roundFigures, err error) {
	if err := w.prepare(ctx, p, l); err != nil {
		return r, err
	}
	runtime.GC() // so that the worker doesn't collect garbage from filling
	start := now()
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return w.run(running, l) })
	if l.every > 0 {
		g.Go(func() error { return p.fill(running, l) })
	}
	g.Go(func() (err error) {
		start, err = p.beforeFirstDelivery(running, start)
		return err
	})
	if err := g.Wait(); err != nil {
		return r, err
	}
	err = p.waitForAcks(ctx)
	end := now()
	return roundFigures{took: end.at.Sub(start.at), cpu: end.cpu - start.cpu}, err
}

// moment is a point in time with the processor time that this process had used by then.
type moment struct {
	at  time.Time
	cpu time.Duration
}

func now() moment { return moment{time.Now(), bench.CPUTime()} }

// These are the pauses between two checks for the first delivery, which may take a long time, and for the last
// acknowledgement.
const (
	pollFirst = time.Millisecond
	pollLast  = 200 * time.Microsecond
)

// beforeFirstDelivery waits for the first delivery from the input streams. It returns the last moment at which no
// consumer had delivered anything. The parameter last is an earlier moment of this kind.
//
// Before the first delivery, a worker looks up its consumers or acquires its partitions. The measurement excludes this,
// because it happens once and takes more than a second with exclusive delivery.
func (p pairs) beforeFirstDelivery(ctx context.Context, last moment) (moment, error) {
	for {
		next := now()
		consumers, err := p.consumers(ctx)
		if err != nil {
			return last, fmt.Errorf("look for the first delivery: %w", err)
		}
		if slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.Delivered.Consumer > 0 }) {
			return last, nil
		}
		last = next
		if err := pause(ctx, p[0].pollFirst); err != nil {
			return last, err
		}
	}
}

// waitForAcks waits until the server has delivered all inputs and received all acknowledgements.
func (p pairs) waitForAcks(ctx context.Context) error {
	for {
		consumers, err := p.consumers(ctx)
		waiting := slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.NumPending > 0 || c.NumAckPending > 0 })
		if err == nil && !waiting {
			return nil
		}
		if err == nil {
			err = pause(ctx, pollLast)
		}
		if err != nil {
			return fmt.Errorf("not every input was acknowledged: %w", err)
		}
	}
}

// consumers returns the states of all consumers of the input streams.
func (p pairs) consumers(ctx context.Context) (all []*jetstream.ConsumerInfo, err error) {
	for _, one := range p {
		stream, err := one.js.Stream(ctx, inStream+one.name)
		if err != nil {
			return nil, err
		}
		list := stream.ListConsumers(ctx)
		for c := range list.Info() {
			all = append(all, c)
		}
		if err := list.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check reads all results back. Each input must have exactly one result, with the right ID, subject and body, and no
// dead letter. If inputs arrived while the worker ran, check returns their latencies.
func (p *pair) check(ctx context.Context, ops []operator.Operator, l load) (latencies []float64, err error) {
	if err := p.checkDeadLetters(ctx); err != nil {
		return nil, err
	}
	stream, err := p.js.Stream(ctx, outStream+p.name)
	if err != nil {
		return nil, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{outPrefix + p.name + ".>"}})
	if err != nil {
		return nil, fmt.Errorf("read results back: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes(p.nc)))
	if err != nil {
		return nil, fmt.Errorf("read results back: %w", err)
	}
	defer messages.Stop()
	stored, seen, right := int(consumer.CachedInfo().NumPending), make([]bool, l.n), l.checker(ops, l.n)
	for range stored {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read results back: %w", err)
		}
		since, err := p.checkResult(m, l, seen, right)
		if err != nil {
			return nil, fmt.Errorf("WRONG RESULT: %w", err)
		}
		if l.every > 0 {
			latencies = append(latencies, since.Seconds())
		}
	}
	if stored != l.n {
		return nil, fmt.Errorf("WRONG RESULT: the result stream holds %d results for %d inputs", stored, l.n)
	}
	return latencies, nil
}

// checkResult checks a message and marks its input in seen. right checks the body and the headers that describe it. checkResult returns the
// time from storing the input to storing its result.
func (p *pair) checkResult(m jetstream.Msg, l load, seen []bool, right func(i int, h nats.Header, body []byte) error) (time.Duration, error) {
	h, id := m.Headers(), m.Headers().Get(jetstream.MsgIDHeader)
	sequence, err := strconv.Atoi(h.Get(results.HeaderSequence))
	i := sequence - 1
	if err != nil || i < 0 || i >= l.n {
		return 0, fmt.Errorf("a message on %s is for no input: %v", m.Subject(), h)
	}
	nanoseconds, ours := strings.CutPrefix(id, p.messageID(uint64(sequence)))
	stored, err := strconv.ParseInt(nanoseconds, 10, 64)
	switch {
	case seen[i]:
		return 0, fmt.Errorf("input %d has two results", sequence)
	case !ours || err != nil:
		return 0, fmt.Errorf("the result of input %d has the id %q", sequence, id)
	case m.Subject() != mapped(p.subject(i)):
		return 0, fmt.Errorf("the result of input %d is on %s, want %s", sequence, m.Subject(), mapped(p.subject(i)))
	}
	seen[i] = true
	if err := right(i, h, m.Data()); err != nil {
		return 0, fmt.Errorf("input %d of %d bytes: %w", sequence, len(l.message(i)), err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Timestamp.Sub(time.Unix(0, stored)), nil
}

// checkDeadLetters returns an error if there is a dead letter.
func (p *pair) checkDeadLetters(ctx context.Context) error {
	subject := deadPrefix + p.name + ".>"
	name, err := p.js.StreamNameBySubject(ctx, subject)
	if err != nil {
		return fmt.Errorf("look for dead letters: %w", err)
	}
	stream, err := p.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look for dead letters: %w", err)
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for dead letters: %w", err)
	}
	return fmt.Errorf("WRONG RESULT: input %s became a dead letter: %s: %s", m.Header.Get(results.HeaderSequence),
		m.Header.Get(results.HeaderReason), m.Header.Get(results.HeaderError))
}
