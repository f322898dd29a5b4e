package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/streams"
)

// chunkedPieces are how many pieces the payload is cut into.
var chunkedPieces = []int{1, 4, 16, 64}

// chunkedFactor is how many batches of the largest size the payload has: 64 MiB on a GPU.
const chunkedFactor = 4

func runChunked(ctx context.Context, t *target) error {
	sizes := t.sizes()
	most := chunkedPieces[len(chunkedPieces)-1]
	payload := roundUp(min(chunkedFactor*sizes[len(sizes)-1], MaxBatchBytes), most*scratchAlign)
	m, err := t.balanced(ctx, sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	whole := &wholeResult{}
	var field []*contender
	for _, n := range chunkedPieces {
		field = append(field, t.chunked(m, payload, n, whole))
	}
	field[0].base = true
	if err := t.race(ctx, field...); err != nil {
		return err
	}
	for _, c := range field {
		c.compare(figureOverWhole, "x", field[0].seconds, c.seconds)
	}
	t.finish(field...)
	return nil
}

// wholeResult is what the payload gave in one piece, this round.
type wholeResult struct {
	seed  uint64
	bytes []byte
}

// chunked makes a contender of one payload in n pieces, each on a lane of its own. A batch of it is the payload.
func (t *target) chunked(m mix, payload, n int, whole *wholeResult) *contender {
	piece := payload / n
	c, f := t.flow(groupSchedules, "chunked", newWords(m, piece), t.inLanes(n))
	c.row.BatchBytes = payload
	times := 0
	c.measure = func(ctx context.Context, c *contender, seed uint64) (err error) {
		if n == 1 {
			whole.seed, whole.bytes = seed, whole.bytes[:0]
		}
		p, err := streams.New(t.dev, f.cfg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		held, err := fillPieces(ctx, p, piece, whole.seed)
		if err != nil {
			return err
		}
		if _, err := f.lap(ctx, p, held, len(held), false); err != nil {
			return err
		}
		pass := func(k int) (time.Duration, error) { return f.passes(ctx, p, held, k) }
		if times == 0 {
			if times, err = pace(t.turn(), 2, pass); err != nil {
				return err
			}
		}
		took, err := pass(times)
		if err != nil {
			return err
		}
		c.row.Batches += times
		c.seconds = append(c.seconds, took.Seconds()/float64(times))
		c.add(figurePieces, "", float64(n))
		if len(c.seconds) == t.Rounds {
			t.trace(c, p, f.recent.last(tracedBatches))
		}
		return whole.compare(m, held, n == 1)
	}
	return c
}

// fillPieces fills every batch of p with one piece of the payload of seed, in order.
func fillPieces(ctx context.Context, p *streams.Pipeline, piece int, seed uint64) ([]*streams.Batch, error) {
	held := make([]*streams.Batch, p.Slots())
	part := make([]byte, piece)
	for i := range held {
		b, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		random(part, seed, i*piece, ^uint64(0))
		if err := appendTo(b, part); err != nil {
			return nil, err
		}
		held[i] = b
	}
	return held, nil
}

// passes takes the whole payload through the pipeline n times, each time to its end.
func (f *flow) passes(ctx context.Context, p *streams.Pipeline, held []*streams.Batch, n int) (time.Duration, error) {
	f.recent.forget()
	start := time.Now()
	for range n {
		if _, err := f.lap(ctx, p, held, len(held), true); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// compare checks the whole payload's result with the reference, and that of the pieces with the whole one's, byte
// for byte.
func (w *wholeResult) compare(m mix, held []*streams.Batch, isWhole bool) error {
	if isWhole {
		w.bytes = append(w.bytes, held[0].Results(0)...)
		load := newWords(m, len(w.bytes))
		return load.verify(held[0], w.seed)
	}
	at := 0
	for i, b := range held {
		got := b.Results(0)
		if at+len(got) > len(w.bytes) || !bytes.Equal(got, w.bytes[at:at+len(got)]) {
			return errWrong{fmt.Errorf("WRONG RESULT: piece %d of %d differs from the whole payload's result", i+1, len(held))}
		}
		at += len(got)
	}
	if at != len(w.bytes) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d pieces gave %d bytes, the whole payload %d", len(held), at, len(w.bytes))}
	}
	return nil
}
