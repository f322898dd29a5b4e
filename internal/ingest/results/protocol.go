package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// window is the protocol without commit markers. The streams drop a message with a known id within their duplicate windows, and the
// worker looks up an older input first. The server answers each message, so one write has all of them.
type window struct{ *Writer }

// Store stores the results of b until each is stored, or its input has a dead letter. It returns an error if ctx ends, if a
// connection is closed permanently, or if the sink returns an error. After an error, the remaining deliveries of b are not settled.
//
// A result that was not confirmed is published again under the same id, so the stream keeps one copy. While the result stream is
// full, missing or slow, Store doesn't return. Once no batch is free, the pull stops too.
func (w *Writer) Store(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) error {
	return (&task{Writer: w, protocol: window{w}, b: b, s: s, sink: sink}).run(ctx)
}

func (p window) isUncertain(d *inflight.Delivery, now time.Time) bool {
	return !p.clearance.mayPublishUnchecked(d, now, p.clearance.results.publishFor(now))
}

func (p window) storeLetters(ctx context.Context, letters []*deadLetter, known *partials) (unstored []*deadLetter, err error) {
	return p.publishLetters(ctx, letters, known)
}

func (window) state() *decider { return nil }

func (window) limits() (messages, bytes int) { return math.MaxInt, math.MaxInt }

func (p window) write(ctx context.Context, t *task, attempt int) (last error) {
	s := t.s
	if len(s.msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, p.clearance.until(t.b.Items, t.items, time.Now()))
	defer cancel()
	if len(s.msgs) == len(s.ends) {
		s.answers = p.publishAttempt(ctx, attempt, s.msgs, s.answers)
	} else {
		p.writeParts(ctx, s, attempt)
	}
	for _, a := range s.answers {
		if a.Err != nil {
			last = a.Err
		}
	}
	return last
}

// errPartMissing is the answer to the last part of a result that isn't published, because an earlier part isn't stored.
var errPartMissing = errors.New("an earlier part of the result isn't stored")

// writeParts writes results of which some have several parts. It publishes the last part of a result after the earlier ones,
// because a result is finished once its last part is stored.
func (p window) writeParts(ctx context.Context, s *Buffers, attempt int) {
	var parts, lasts []*nats.Msg
	first := 0
	for _, end := range s.ends {
		parts, first = append(parts, s.msgs[first:end-1]...), end
	}
	stored := p.server.Again.Publish(ctx, parts, nil)
	first = 0
	for _, end := range s.ends {
		n := end - 1 - first
		s.answers = append(s.answers, stored[:n]...)
		last := store.Answer{}
		if slices.ContainsFunc(stored[:n], func(a store.Answer) bool { return a.Err != nil }) {
			last.Err = errPartMissing
		} else {
			lasts = append(lasts, s.msgs[end-1])
		}
		s.answers = append(s.answers, last)
		stored, first = stored[n:], end
	}
	answers := p.publishAttempt(ctx, attempt, lasts, nil)
	for _, end := range s.ends {
		if s.answers[end-1].Err == nil {
			s.answers[end-1], answers = answers[0], answers[1:]
		}
	}
}

func (p window) recover(t *task, _ error) (r recovery) {
	r.limit = len(t.b.Items)
	for k, a := range t.s.outcomes {
		if store.Unstorable(a.Err) {
			r.unstorable = append(r.unstorable, unstorable{t.items[k], a.Err})
		} else if a.Err != nil {
			r.pause = true
		}
	}
	return r
}

// chain is the protocol with commit markers, for one batch. Each write is a commit.
type chain struct {
	*Commits
	// looked is the sequence of the last delivery that was looked up. Once is enough, because no other worker can store results of the
	// partition now.
	looked  uint64
	doubted bool // whether the stream has a result that should not be there, so that all inputs must be looked up
	changed bool // whether the result stream's settings may have changed since the last write

	checked, progressed bool // whether the last commit was checked, and whether some of its messages are stored
}

// Store is like Writer.Store, but stores exactly once. After an error, the lease must end.
func (c *Commits) Store(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) error {
	c.server.Refresh(ctx, false)
	return (&task{Writer: c.Writer, protocol: &chain{Commits: c}, b: b, s: s, sink: sink}).run(ctx)
}

// isUncertain implements protocol. A result that may not be published unchecked gets HeaderDeliveries, which lookups need.
func (p *chain) isUncertain(d *inflight.Delivery, now time.Time) bool {
	certain := d.Sequence <= p.looked || d.First || p.results.IsCertain(position(d))
	if !p.clearance.mayPublishUnchecked(d, now, p.clearance.results.publishFor(now)) {
		d.First = false
	}
	return !certain || p.doubted
}

const (
	// maxAtomic is the maximum number of messages in an atomic batch, including the marker. It is nats-server's default.
	maxAtomic = 1000

	// maxFast is the maximum number of messages in a fast batch, including the marker.
	maxFast = 4096

	// maxCommittedBytes is the maximum number of bytes in the result bodies of one commit, unless a single input has more.
	maxCommittedBytes = 4 << 20
)

func (p *chain) state() *decider { return p.Commits.state }

func (p *chain) limits() (messages, bytes int) {
	messages = maxAtomic
	if p.results.Way == store.Fast {
		messages = maxFast
	}
	if p.Commits.state != nil {
		messages -= maxEntries
	}
	return messages, maxCommittedBytes
}

// write implements protocol. It stores a marker even without results, so that later markers need not list the batch's dead letters. A
// single result is checked from its second attempt on, which shows whether it can be stored.
func (p *chain) write(ctx context.Context, t *task, attempt int) error {
	p.doubted = false
	if len(t.b.Items) == 0 {
		return nil // the batch has only a part of a frame
	}
	last := t.to - 1
	p.looked = t.b.Items[last].Sequence
	if len(t.items) < len(t.s.left) {
		last = t.items[len(t.items)-1]
	}
	p.checked = attempt > 1 && len(t.items) == 1
	stored, err := make([]bool, len(t.s.msgs)), p.checkCurrent(ctx)
	if err == nil {
		stored, err = p.commit(ctx, store.Batch{Messages: t.s.msgs, At: position(&t.b.Items[last]), Checked: p.checked})
	}
	p.progressed = slices.Contains(stored, true)
	for _, ok := range stored {
		a := store.Answer{}
		if !ok {
			a.Err = err
		}
		t.s.answers = append(t.s.answers, a)
	}
	return err
}

// checkCurrent returns errSettingsChanged if the kind of commit has changed since the start of the lease.
func (p *chain) checkCurrent(ctx context.Context) error {
	if !p.changed {
		return nil
	}
	p.changed = false
	p.server.Refresh(ctx, true)
	if topology.Commits(p.way.Load()) != p.kind {
		return errSettingsChanged
	}
	return nil
}

// errSettingsChanged means that the lease must end because the result stream's settings require a different kind of commit.
var errSettingsChanged = errors.New("the result stream's settings have changed")

const (
	// codeDuplicate is JetStream's error code for an atomic batch with an id that the stream already has.
	codeDuplicate jetstream.ErrorCode = 10201

	// codeTooMany is JetStream's error code for an atomic batch with too many messages.
	codeTooMany jetstream.ErrorCode = 10199
)

// recover implements protocol. The server doesn't say which result of a commit can't be stored, so the commits get smaller until the
// result is alone.
func (p *chain) recover(t *task, err error) recovery {
	all, n := len(t.b.Items), len(t.items)
	var refused *jetstream.APIError
	never, incomplete := store.Unstorable(err), store.IncompleteBatch(err) && !p.checked // never: no retry stores all of t.items
	if errors.As(err, &refused) {
		never = never || incomplete || refused.ErrorCode == codeTooMany
	}
	switch {
	case store.EndsChain(err), errors.Is(err, errSettingsChanged):
		return recovery{over: fmt.Errorf("store results of a partition: %w", err)}
	case never && n == 1 && incomplete:
		return recovery{limit: 1} // the next commit is checked
	case never && n == 1:
		return recovery{limit: all, unstorable: []unstorable{{t.items[0], err}}}
	case never && p.progressed:
		return recovery{limit: 1} // the first delivery in s.left is the cause
	case never && n > 1:
		return recovery{limit: (n + 1) / 2}
	case refused != nil && refused.ErrorCode == codeDuplicate:
		p.doubted = true
		return recovery{limit: all}
	}
	p.changed = true
	return recovery{limit: all, pause: true}
}
