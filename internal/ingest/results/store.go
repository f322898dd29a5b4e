package results

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/store"
)

// task stores the results and the dead letters of one batch.
type task struct {
	*Writer
	protocol
	b    *inflight.Batch
	s    *Buffers
	sink Sink

	from, to int                 // range of the deliveries that are being stored; the whole batch without a stateful operator
	given    map[int]*deadLetter // dead letters of messages without a result, by index in the batch
	letters  bool                // whether given and the dead letters of records are stored
	items    []int               // the deliveries of the current write, which are the first in s.left
}

func (t *task) run(ctx context.Context) error {
	t.s.reset()
	t.s.left = t.b.AppendUnsettled(t.s.left)
	for _, i := range t.s.left {
		for _, id := range t.b.Items[i].Parts {
			t.s.partial.add(lookup.Partial{ID: id})
		}
	}
	if err := t.awaitFrames(ctx); err != nil {
		return err
	}
	if err := t.settleDecided(ctx); err != nil {
		return err
	}
	if t.state() == nil {
		t.to = len(t.b.Items)
		return t.finish(ctx)
	}
	all := slices.Clone(t.s.left)
	for {
		n, err := t.decide(all)
		if err != nil {
			return err
		}
		t.s.left = append(t.s.left[:0], all[:n]...)
		if all = all[n:]; len(all) == 0 {
			t.to = len(t.b.Items)
			return t.finish(ctx)
		}
		t.to = all[0]
		if err := t.finish(ctx); err != nil {
			return err
		}
		t.from, t.given, t.letters = t.to, nil, false
	}
}

// settleDecided looks up the deliveries of which messages may already be stored. It settles the deliveries with a stored result
// before the task stores their dead letters. The state of a stateful operator still decides on their records.
func (t *task) settleDecided(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		known, err := t.lookUp(ctx, t.mayBeDecided)
		if err == nil && t.state() == nil {
			t.settle(ctx, known, slices.Repeat([]store.Answer{{Duplicate: true}}, len(known)))
			return nil
		}
		if err == nil {
			for _, i := range known {
				t.b.Items[i].Done = true
			}
			return nil
		}
		if err := t.awaitNext(ctx, attempt, err); err != nil {
			return err
		}
	}
}

// decide lets the state decide on the first deliveries in items, and returns their number.
func (t *task) decide(items []int) (n int, err error) {
	n = t.state().take(items, func(i int) int {
		d := &t.b.Items[i]
		if d.Frame != nil {
			t.adoptLetters(d, true)
			t.recompute(d)
		}
		return t.ask(d.Frame)
	})
	var deliveries []*inflight.Delivery
	for _, i := range items[:n] {
		if d := &t.b.Items[i]; d.Frame != nil {
			deliveries = append(deliveries, d)
		}
	}
	return n, t.state().decide(deliveries)
}

// finish encodes and stores the results and the dead letters of the deliveries in s.left.
func (t *task) finish(ctx context.Context) error {
	t.encode()
	limit := len(t.b.Items)
	for attempt := 1; ; attempt++ {
		next, err := t.store(ctx, limit, attempt)
		switch {
		case next.over != nil:
			return next.over
		case err == nil && len(t.s.left) == 0:
			return nil
		case err == nil:
			attempt = 0
		case next.pause:
			if err := t.awaitNext(ctx, attempt, err); err != nil {
				return err
			}
		}
		limit = next.limit
	}
}

// encode encodes the results of frames. It removes deliveries without a result from s.left, and collects their dead letters.
func (t *task) encode() {
	t.s.left = slices.DeleteFunc(t.s.left, func(i int) bool {
		d := &t.b.Items[i]
		why, cause := OperatorError, t.b.Refusal(i)
		if cause == nil && d.Frame != nil && !d.Done {
			t.adoptLetters(d, false)
			why, cause = t.encodeFrame(d)
		}
		if cause == nil {
			return false
		}
		if t.given == nil {
			t.given = map[int]*deadLetter{}
		}
		t.given[i] = t.newLetter(i, why, cause)
		return true
	})
}

// awaitFrames waits for the frames that end in the batch. It removes frames whose results can't be computed.
func (t *task) awaitFrames(ctx context.Context) (err error) {
	t.s.left = slices.DeleteFunc(t.s.left, func(i int) bool {
		d := &t.b.Items[i]
		if d.Frame == nil || t.b.Refusal(i) != nil || err != nil {
			return false
		}
		waited := d.Frame.Await(ctx)
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case waited != nil:
			err = t.sink.Incomplete(t.b, i, waited)
			return true
		}
		return false
	})
	return err
}

// store makes one attempt to store the messages of up to limit deliveries. A commit marker covers the dead letters of a batch, so
// they are stored first.
func (t *task) store(ctx context.Context, limit, attempt int) (next recovery, err error) {
	if err := t.settleKnown(ctx); err != nil {
		return recovery{limit: limit, pause: true}, err
	}
	if err := t.storeLetters(ctx); err != nil {
		return recovery{over: err}, err
	}
	t.prepare(limit)
	next.limit = min(2*limit, len(t.b.Items))
	err = t.write(ctx, t, attempt)
	t.combineAnswers(err)
	if err != nil {
		next = t.recover(t, err)
	}
	if t.settle(ctx, t.items, t.s.outcomes) > 0 {
		t.o.Progress.Mark()
	}
	for _, u := range next.unstorable {
		if over := t.storeSomeLetters(ctx, []*deadLetter{t.newLetter(u.item, TooLarge, errUnstorable(u.err))}); over != nil {
			next.over = over
			break
		}
	}
	return next, err
}

// awaitNext logs the error of an attempt, and waits until the next attempt. It returns an error if there can be none.
func (t *task) awaitNext(ctx context.Context, attempt int, err error) error {
	if over := t.ended(ctx); over != nil {
		return over
	}
	t.o.Log.Warn(notStored, "results", len(t.s.left), "attempt", attempt, "stream", t.o.ResultStream, "error", err)
	if !t.awaitRetry(ctx, attempt) {
		return ctx.Err()
	}
	return nil
}

// ended returns an error if ctx has ended or a connection is closed, so that nothing more can be stored.
func (t *task) ended(ctx context.Context) error {
	if t.server.Closed() && ctx.Err() == nil {
		return fmt.Errorf("store results: %w", jetstream.ErrConnectionClosed)
	}
	return ctx.Err()
}

// settleKnown looks up the deliveries in s.left whose results may already be stored, and settles those with stored results.
func (t *task) settleKnown(ctx context.Context) error {
	now := time.Now()
	known, err := t.lookUp(ctx, func(d *inflight.Delivery) bool { return t.isUncertain(d, now) })
	t.settle(ctx, known, slices.Repeat([]store.Answer{{Duplicate: true}}, len(known)))
	return err
}

// lookUp looks up the deliveries in s.left for which wanted returns true. It returns those with stored results.
func (t *task) lookUp(ctx context.Context, wanted func(d *inflight.Delivery) bool) (known []int, err error) {
	s := t.s
	s.stale = s.stale[:0]
	for _, i := range s.left {
		if d := &t.b.Items[i]; !d.Done && wanted(d) {
			s.stale = append(s.stale, i)
		}
	}
	if len(s.stale) == 0 {
		return nil, nil
	}
	if s.known, err = t.clearance.find(ctx, t.b.Items, s.stale, s.known[:0], &s.partial); err != nil {
		return nil, err
	}
	return s.known, nil
}

// storeLetters stores all dead letters once. It returns an error if the task must end.
func (t *task) storeLetters(ctx context.Context) error {
	if t.letters {
		return nil
	}
	var next []*deadLetter
	bytes := 0 // of bodies that aren't part of their input
	for l := range t.deadLetters() {
		if l.contentType == client.TypeArrow {
			bytes += len(l.body)
		}
		if next = append(next, l); len(next) == lettersAtOnce || bytes > copiedAtOnce {
			if err := t.storeSomeLetters(ctx, next); err != nil {
				return err
			}
			next, bytes = nil, 0
		}
	}
	t.letters = true
	return t.storeSomeLetters(ctx, next)
}

// deadLetters yields dead letters in the order of the batch: of messages without a result, and of failed records in the frames
// of s.left.
func (t *task) deadLetters() iter.Seq[*deadLetter] {
	return func(yield func(*deadLetter) bool) {
		for i := t.from; i < t.to; i++ {
			d := &t.b.Items[i]
			if l := t.given[i]; l != nil {
				if !yield(l) {
					return
				}
				continue
			}
			for r := 0; d.Frame != nil && !d.Done && r < d.Frame.Records() && !t.b.IsSettled(i); r++ {
				if d.Frame.Table.Status(r).Failed() && !yield(t.newRecordLetter(i, r)) {
					return
				}
			}
		}
	}
}

// storeSomeLetters stores letters, at most lettersAtOnce, and settles the deliveries that are given up. It passes deliveries with
// unstored dead letters to the sink.
func (t *task) storeSomeLetters(ctx context.Context, letters []*deadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	all := slices.Clone(letters)
	unstored, err := t.protocol.storeLetters(ctx, letters, &t.s.partial)
	if err != nil {
		if over := t.ended(ctx); over != nil {
			return over
		}
		t.logUnstoredDeadLetter(unstored[0], err)
	}
	for _, l := range all {
		switch {
		case t.b.IsSettled(l.item): // an earlier record's dead letter isn't stored
		case slices.Contains(unstored, l):
			if err := t.sink.Incomplete(t.b, l.item, err); err != nil {
				return err
			}
		case l.record == noRecord:
			t.b.Settle(l.item)
			t.sink.DeadLettered(l.d, l.why)
			t.ReportDeadLetter(l.d, l.why, l.cause)
		}
	}
	t.s.left = slices.DeleteFunc(t.s.left, t.b.IsSettled)
	return nil
}

// newLetter returns the dead letter of the i-th delivery.
func (t *task) newLetter(i int, why Reason, cause error) *deadLetter {
	l := t.newDeadLetter(&t.b.Items[i], why, cause)
	l.item = i
	return l
}

// newRecordLetter returns the dead letter of record r in the frame of the i-th delivery.
func (t *task) newRecordLetter(i, r int) *deadLetter {
	l := t.Writer.newRecordLetter(&t.b.Items[i], r)
	l.item = i
	return l
}

// prepare prepares the messages of up to limit deliveries of s.left for a write.
func (t *task) prepare(limit int) {
	s := t.s
	s.clear() // an earlier attempt may have had more messages
	s.results, s.msgs, s.answers, s.ends = s.results[:0], s.msgs[:0], s.answers[:0], s.ends[:0]
	messages, maxBytes := t.limits()
	bytes := 0
	for k, i := range s.left[:min(limit, len(s.left))] {
		first := len(s.results)
		t.appendMessages(i)
		for _, m := range s.results[first:] {
			bytes += len(m.Data)
		}
		if k > 0 && (len(s.results) >= messages || bytes > maxBytes) {
			s.results = s.results[:first]
			break
		}
		s.ends = append(s.ends, len(s.results))
	}
	for n := range s.results {
		s.msgs = append(s.msgs, &s.results[n])
	}
	t.items = s.left[:len(s.ends)]
}

// appendMessages appends those messages of the i-th delivery's result to s.results that aren't stored yet.
func (t *task) appendMessages(i int) {
	d := &t.b.Items[i]
	if d.Done {
		return
	}
	if d.Frame == nil {
		h, body := ResultHeader(d, t.operators), t.b.Result(i)
		t.content.describe(h, false, len(body))
		t.s.results = append(t.s.results, nats.Msg{Subject: store.MapSubject(t.o.ResultPrefix, d.Subject), Header: h, Data: body})
		return
	}
	for n := range d.Frame.Parts {
		if part := t.part(d, n); !t.s.partial.has(store.IDOf(part.Header)) {
			t.s.results = append(t.s.results, part)
		}
	}
}

// combineAnswers sets s.outcomes to one answer per delivery. It records the stored parts of incomplete results. err is the error of the
// write, which is the answer for a delivery without messages.
func (t *task) combineAnswers(err error) {
	s, first := t.s, 0
	s.outcomes = s.outcomes[:0]
	for _, end := range s.ends {
		if first == end {
			s.outcomes = append(s.outcomes, store.Answer{Duplicate: true, Err: err})
			continue
		}
		a := s.answers[end-1]
		for _, each := range s.answers[first:end] {
			if each.Err != nil {
				a = each
				break
			}
		}
		for n := first; n < end && a.Err != nil; n++ {
			if s.answers[n].Err == nil {
				s.partial.add(lookup.Partial{ID: store.IDOf(s.msgs[n].Header)})
			}
		}
		s.outcomes, first = append(s.outcomes, a), end
	}
}

// settle settles the deliveries in items whose answer has no error, and returns their number.
func (t *task) settle(ctx context.Context, items []int, answers []store.Answer) int {
	s, now := t.s, time.Now()
	headroom := t.b.Headroom(now, t.o.AckWait)
	s.stored = s.stored[:0]
	for k, i := range items {
		if answers[k].Err != nil {
			continue
		}
		d, outcome := &t.b.Items[i], inflight.Published
		if answers[k].Duplicate {
			outcome = inflight.Duplicate
		}
		s.stored = append(s.stored, d)
		t.b.Settle(i)
		t.o.Stored(d.Sequence, d.Stored)
		t.o.Observer.Settled(outcome, len(d.Msg.Data()), t.b.ResultBytes(i), now.Sub(d.Received), headroom)
		if d.Frame != nil && (d.First || outcome == inflight.Published) { // an earlier delivery reported the frame of a duplicate
			t.o.Observer.Frame(d.Frame.Stats())
		}
	}
	if len(s.stored) > 0 {
		t.sink.Stored(ctx, s.stored)
		s.left = slices.DeleteFunc(s.left, t.b.IsSettled)
	}
	s.Settling += time.Since(now)
	return len(s.stored)
}
