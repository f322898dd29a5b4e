package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
)

// committer stores the results and the dead letters of one batch.
type committer struct {
	*Writer
	b    *inflight.Batch
	s    *Buffers
	sink Sink
	c    *Commits
}

const (
	// maxAtomic is the maximum number of messages in an atomic batch, including the marker. It is nats-server's default.
	maxAtomic = 1000

	// maxFast is the maximum number of messages in a fast batch, including the marker.
	maxFast = 4096

	// maxCommittedBytes is the maximum number of bytes in the result bodies of one commit, unless a single input has more.
	maxCommittedBytes = 4 << 20

	// codeDuplicate is JetStream's error code for an atomic batch with an id that the stream already has.
	codeDuplicate jetstream.ErrorCode = 10201

	// codeTooMany is JetStream's error code for an atomic batch with too many messages.
	codeTooMany jetstream.ErrorCode = 10199
)

// Settle is like Writer.Settle, but stores exactly once. It stores the dead letters of a batch before the results. After an error,
// the lease must end.
func (c *Commits) Settle(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) error {
	w := c.w
	s.reset()
	s.left = b.AppendUnsettled(s.left)
	for _, i := range s.left {
		s.partial.add(b.Items[i].Parts)
	}
	m := &committer{Writer: w, b: b, s: s, sink: sink, c: c}
	given := &givenUp{Sink: sink, w: w}
	if err := (frameWriter{w}).encodeFrames(ctx, b, s, given); err != nil {
		return err
	}
	if err := w.giveUpRefused(ctx, b, s, given); err != nil {
		return err
	}
	w.following.Refresh(ctx)
	if err := m.lookUp(ctx, func(d *inflight.Delivery) bool { return !c.isCertain(d) }); err != nil {
		return err
	}
	if err := m.storeLetters(ctx, given.letters); err != nil {
		return err
	}
	return m.storeResults(ctx)
}

// lookUp looks up the deliveries in s.left if uncertain returns true for them, and settles those with a stored result. One lookup
// is enough, because no other worker can store results of the partition now.
func (m *committer) lookUp(ctx context.Context, uncertain func(*inflight.Delivery) bool) error {
	var open []int
	for _, i := range m.s.left {
		if uncertain(&m.b.Items[i]) {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	for attempt := 1; ; attempt++ {
		known, err := m.clearance.find(ctx, m.b.Items, open, nil, &m.s.partial)
		if err == nil {
			m.settle(ctx, known, publisher.Answer{Duplicate: true})
			return nil
		}
		m.s.warn(m.Writer, attempt, err)
		if !m.awaitRetry(ctx, attempt) {
			return ctx.Err()
		}
	}
}

// settle settles the deliveries with the indices in items, and removes them from s.left. items must be sorted. The reported
// outcome depends on a.
func (m *committer) settle(ctx context.Context, items []int, a publisher.Answer) {
	if len(items) == 0 {
		return
	}
	now := time.Now()
	headroom := m.b.Headroom(now, m.Writer.o.AckWait)
	m.s.stored = m.s.stored[:0]
	for _, i := range items {
		d := &m.b.Items[i]
		m.s.stored = append(m.s.stored, d)
		m.b.Settle(i)
		m.stored(d)
		m.Writer.o.Observer.Settled(outcome(a), len(d.Msg.Data()), m.b.ResultBytes(i), now.Sub(d.Received), headroom)
		frameWriter{m.Writer}.observeFrame(d, a)
	}
	m.sink.Stored(ctx, m.s.stored)
	m.s.left = slices.DeleteFunc(m.s.left, func(i int) bool {
		_, settled := slices.BinarySearch(items, i)
		return settled
	})
}

// next returns the next batch of results to commit. It has up to limit deliveries.
func (m *committer) next(limit int) (n resultBatch) {
	bytes, messages := 0, maxAtomic
	if m.c.results.Way == commit.Fast {
		messages = maxFast
	}
	now := time.Now()
	soon := m.clearance.results.publishFor(now)
	for k, i := range m.s.left[:min(limit, len(m.s.left))] {
		if d := &m.b.Items[i]; !m.clearance.mayPublishUnchecked(d, now, soon) {
			d.First = false // adds HeaderDeliveries to the result, which lookups need
		}
		msgs := m.messages(i)
		for _, each := range msgs {
			bytes += len(each.Data)
		}
		if k > 0 && (len(n.msgs)+len(msgs) >= messages || bytes > maxCommittedBytes) {
			break
		}
		n.items, n.msgs = append(n.items, i), append(n.msgs, msgs...)
		n.ends = append(n.ends, len(n.msgs))
	}
	last := len(m.b.Items) - 1
	if len(n.items) < len(m.s.left) {
		last = n.items[len(n.items)-1]
	}
	n.at = position(&m.b.Items[last])
	return n
}

// messages returns those messages of the i-th delivery's result that aren't stored yet.
func (m *committer) messages(i int) (msgs []*nats.Msg) {
	d := &m.b.Items[i]
	if d.Frame == nil {
		r := m.result(m.b, i)
		return []*nats.Msg{m.c.ownID(&r)}
	}
	for n := range d.Frame.Parts {
		part := frameWriter{m.Writer}.part(d, n)
		if !m.s.partial[commit.ID(part.Header)] {
			msgs = append(msgs, m.c.ownID(&part))
		}
	}
	return msgs
}

// storeResults stores the results of the deliveries in s.left. It stores a marker even without results, so that later markers need
// not list the batch's dead letters.
func (m *committer) storeResults(ctx context.Context) error {
	if len(m.b.Items) == 0 {
		return nil // the batch has only a part of a frame
	}
	limit := len(m.b.Items)
	for attempt, done := 1, false; !done; {
		n := m.next(limit)
		n.checked = attempt > 1 && len(n.items) == 1
		stored, err := m.c.commit(ctx, n)
		settled := n.done(stored)
		done = err == nil && len(n.items) == len(m.s.left)
		m.settle(ctx, settled, publisher.Answer{})
		if len(settled) > 0 {
			m.Writer.o.Progress()
		}
		if err == nil {
			limit, attempt = min(2*limit, len(m.b.Items)), 1
			continue
		}
		for k, each := range n.msgs {
			if stored[k] {
				m.s.partial.add([]string{commit.ID(each.Header)})
			}
		}
		if limit, err = m.failed(ctx, n, slices.Contains(stored, true), err, attempt); err != nil {
			return err
		}
		attempt++
	}
	return nil
}

// failed handles err, the error of attempt to commit n. progressed reports whether some messages are stored. failed returns the
// maximum number of deliveries in the next commit, or an error if the lease must end.
func (m *committer) failed(ctx context.Context, n resultBatch, progressed bool, err error, attempt int) (limit int, over error) {
	var refused *jetstream.APIError
	limit = len(m.b.Items)
	unstorable := publisher.Unstorable(err)
	if errors.As(err, &refused) {
		unstorable = unstorable || refused.ErrorCode == codeTooMany || publisher.IncompleteBatch(err) && !n.checked
	}
	switch {
	case commit.Over(err), m.conns.Closed():
		return 0, fmt.Errorf("store results of a partition: %w", err)
	case unstorable && len(n.items) == 1 && publisher.IncompleteBatch(err):
		return 1, nil // the next attempt is checked
	case unstorable && len(n.items) == 1:
		return limit, m.giveUp(ctx, n.items[0], TooLarge, errUnstorable(err))
	case unstorable && progressed:
		return 1, nil // the first delivery in s.left is the cause
	case unstorable:
		return (len(n.items) + 1) / 2, nil
	case refused != nil && refused.ErrorCode == codeDuplicate:
		return limit, m.lookUp(ctx, func(*inflight.Delivery) bool { return true })
	}
	m.s.warn(m.Writer, attempt, err)
	if !m.awaitRetry(ctx, attempt) {
		return 0, ctx.Err()
	}
	m.following.Doubt()
	m.following.Refresh(ctx)
	return limit, m.checkCurrent()
}

func (s *Buffers) warn(w *Writer, attempt int, err error) {
	w.o.Log.Warn(notStored,
		"results", len(s.left), "attempt", attempt, "stream", w.o.ResultStream, "error", err)
}

// storeLetters stores letters, and the dead letters of failed records in the frames of s.left, in the order of their inputs. It
// settles the deliveries of letters.
func (m *committer) storeLetters(ctx context.Context, letters []*deadLetter) error {
	for _, i := range m.s.left {
		if d := &m.b.Items[i]; d.Frame != nil {
			for r := range d.Frame.Records() {
				if d.Frame.Table.Status(r).Failed() {
					letters = append(letters, m.newRecordLetter(d, r))
				}
			}
		}
	}
	slices.SortStableFunc(letters, func(a, b *deadLetter) int { return int(int64(a.d.Sequence) - int64(b.d.Sequence)) })
	for some := range slices.Chunk(letters, lettersAtOnce) {
		whole := slices.Clone(some)
		if err := m.c.storeLetters(ctx, some, &m.s.partial); err != nil {
			return err
		}
		for _, l := range whole {
			if l.record == noRecord {
				m.b.Settle(m.b.Find(l.d.Sequence))
				m.ReportDeadLetter(l.d, l.why, l.cause)
				m.sink.Stored(ctx, []*inflight.Delivery{l.d})
			}
		}
	}
	return nil
}

// giveUp stores the dead letter of the i-th delivery, and settles the delivery.
func (m *committer) giveUp(ctx context.Context, i int, why Reason, cause error) error {
	m.s.left = slices.DeleteFunc(m.s.left, func(k int) bool { return k == i })
	l := m.newDeadLetter(&m.b.Items[i], why, cause)
	if err := m.c.storeLetters(ctx, []*deadLetter{l}, &m.s.partial); err != nil {
		return err
	}
	m.b.Settle(i)
	m.ReportDeadLetter(l.d, why, cause)
	m.sink.Stored(ctx, []*inflight.Delivery{l.d})
	return nil
}

// errSettingsChanged means that the lease must end because the result stream's settings require a different kind of commit.
var errSettingsChanged = errors.New("the result stream's settings have changed")

// checkCurrent returns errSettingsChanged if the kind of commit has changed since the start of the lease.
func (m *committer) checkCurrent() error {
	if topology.Commits(m.way.Load()) != m.c.way {
		return errSettingsChanged
	}
	return nil
}
