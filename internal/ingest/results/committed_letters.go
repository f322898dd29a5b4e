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
	"millrace/internal/ingest/retry"
)

// givenUp is a Sink that collects the dead letters of a batch instead of publishing them.
type givenUp struct {
	Sink
	w       *Writer
	letters []*deadLetter
}

func (g *givenUp) Undeliverable(_ context.Context, b *inflight.Batch, i int, why Reason, cause error) error {
	g.letters = append(g.letters, g.w.newDeadLetter(&b.Items[i], why, cause))
	return nil
}

func (g *givenUp) CollectRefused(ctx context.Context, b *inflight.Batch, refused []int) error {
	for _, i := range refused {
		_ = g.Undeliverable(ctx, b, i, OperatorError, b.Refusal(i))
	}
	return nil
}

// letter returns the marker's entry for the dead letter.
func (l *deadLetter) letter() commit.Letter {
	return commit.Letter{Input: position(l.d), Record: l.record}
}

// PublishDeadLetter stores the dead letter of d, which is in no batch, and a marker at d's position. All earlier inputs must be
// settled.
func (c *Commits) PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	if err := c.storeLetters(ctx, []*deadLetter{c.w.newDeadLetter(d, why, cause)}, new(partials)); err != nil {
		return err
	}
	_, err := c.commit(ctx, resultBatch{at: position(d)})
	return err
}

// storeLetters stores letters, at most lettersAtOnce. It skips dead letters that are stored already, and modifies the slice
// letters. known has ids of stored dead letters. It logs any error that it returns, unless ctx has ended.
func (c *Commits) storeLetters(ctx context.Context, letters []*deadLetter, known *partials) error {
	if len(letters) == 0 {
		return nil
	}
	var unstored *deadLetter
	var err error
	if c.letters == nil {
		unstored, err = c.w.publishLetters(ctx, letters, known)
	} else {
		letters = slices.DeleteFunc(letters, func(l *deadLetter) bool { return c.hasLetter(l) })
		unstored, err = c.commitLetters(ctx, letters)
	}
	if err != nil && ctx.Err() == nil {
		c.w.logUnstoredDeadLetter(unstored.d, unstored.why, err)
	}
	return err
}

func (c *Commits) hasLetter(l *deadLetter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.letters.Letters().Has(l.letter())
}

// commitLetters stores letters in one commit. If the server refuses a dead letter, commitLetters stores each in a separate commit,
// in the first form that the server accepts. With an error, it returns a dead letter that isn't stored.
func (c *Commits) commitLetters(ctx context.Context, letters []*deadLetter) (unstored *deadLetter, err error) {
	var msgs []*nats.Msg
	for _, l := range letters {
		l.store = func(ctx context.Context, m *nats.Msg) error {
			return c.writeLetters(ctx, []*deadLetter{l}, []*nats.Msg{m})
		}
		msgs = append(msgs, l.message(true, whole.omitted(), l.body))
	}
	if len(letters) == 0 {
		return nil, nil
	}
	err = c.writeLetters(ctx, letters, msgs)
	if err == nil {
		for _, l := range letters {
			l.stored()
		}
		return nil, nil
	}
	if !publisher.Unstorable(err) && !publisher.IncompleteBatch(err) {
		return letters[0], err
	}
	for _, l := range letters {
		if err := l.publishAlone(ctx); err != nil {
			return l, fmt.Errorf("dead letter on %q: %w", l.subject, err)
		}
		l.stored()
	}
	return nil, nil
}

// writeLetters stores msgs, the messages of letters, in one commit. It makes at most deadLetterAttempts attempts.
func (c *Commits) writeLetters(ctx context.Context, letters []*deadLetter, msgs []*nats.Msg) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]commit.Letter, len(letters))
	for i, l := range letters {
		ids[i] = l.letter()
		c.ownID(msgs[i])
	}
	for attempt := 1; ; attempt++ {
		err = c.letters.CommitLetters(ctx, msgs, ids, c.settled)
		switch {
		case err == nil:
			c.letterAge.stored = time.Now()
			return nil
		case commit.Over(err), publisher.Unstorable(err), publisher.IncompleteBatch(err) && len(msgs) > 1, errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			return err
		}
	}
}
