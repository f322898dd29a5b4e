package results

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
)

// protocol is a way to store each message once. window relies on the streams' duplicate windows, and chain on commit markers.
type protocol interface {
	// isUncertain reports whether d must be looked up before anything is stored for it, because its result may be stored already.
	isUncertain(d *inflight.Delivery, now time.Time) bool

	// mayBeDecided reports whether an earlier delivery of d may have stored a result, or dead letters of records.
	mayBeDecided(d *inflight.Delivery) bool

	// storeLetters stores letters, at most lettersAtOnce. It skips dead letters that are stored already, and modifies the slice. known
	// has ids of stored dead letters. With an error, it returns the dead letters that aren't stored.
	storeLetters(ctx context.Context, letters []*deadLetter, known *partials) (unstored []*deadLetter, err error)

	// state returns the lease's state of a stateful operator, or nil.
	state() *decider

	// limits returns the maximum number of messages in one write, and the maximum number of bytes in their bodies. The messages of a
	// single input may exceed both.
	limits() (messages, bytes int)

	// write stores the messages that t has prepared. It appends one answer per message to t.s.answers. It also returns the last error.
	write(ctx context.Context, t *task, attempt int) error

	// recover decides how t continues after write has returned err.
	recover(t *task, err error) recovery
}

// recovery describes how a task continues after an error.
type recovery struct {
	unstorable []unstorable
	limit      int   // maximum number of deliveries in the next write
	pause      bool  // whether to wait before the next write
	over       error // not nil if the task must end
}

// unstorable is a delivery whose result can never be stored.
type unstorable struct {
	item int // index in the batch
	err  error
}

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
	return !p.clearance.results.mayPublishUnchecked(d, now, p.clearance.results.publishFor(now))
}

// mayBeDecided implements protocol. The server drops a result with a stored id, but not the dead letters of its records.
func (window) mayBeDecided(d *inflight.Delivery) bool { return d.Frame != nil && !d.First }

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
