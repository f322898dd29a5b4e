package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"millrace/internal/streams"
)

// chunkedPieces are the numbers of pieces that the payload is cut into.
var chunkedPieces = []int{1, 4, 16, 64}

// chunkedFactor is the size of the payload in batches of the largest size: 64 MiB on a GPU.
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
	var cases []*Case
	for _, n := range chunkedPieces {
		cases = append(cases, t.chunked(m, payload, n, whole))
	}
	cases[0].Reference = true
	if err := t.Measure(ctx, cases...); err != nil {
		return err
	}
	for _, c := range cases {
		c.ratio(figureOverWhole, "x", cases[0].seconds, c.seconds)
	}
	t.Report(cases...)
	return nil
}

// wholeResult is the result of the payload in one piece, in this round.
type wholeResult struct {
	seed  uint64
	bytes []byte
}

// chunked makes a case that runs one payload in n pieces, each on its own lane. The payload counts as one batch.
func (t *target) chunked(m mix, payload, n int, whole *wholeResult) *Case {
	piece := payload / n
	c, f := t.flow("chunked", newWords(m, piece), t.inLanes(n))
	c.Row.BatchBytes = payload
	c.Measure = func(ctx context.Context, c *Case, seed uint64) error {
		if n == 1 {
			whole.seed, whole.bytes = seed, whole.bytes[:0]
		}
		return f.withPipeline(func(p *streams.Pipeline) error {
			held, err := fillPieces(ctx, p, piece, whole.seed)
			if err != nil {
				return err
			}
			b := f.batchRun(p, held)
			err = c.timed(t.Turn(), 2, func(n int) (time.Duration, error) { return f.passes(ctx, b, n) })
			if err != nil {
				return err
			}
			c.Add(figurePieces, "", float64(n))
			if len(c.seconds) == t.Rounds {
				t.trace(c, p, f.recent.last(tracedBatches))
			}
			return whole.compare(m, held, n == 1)
		})
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

// passes takes the whole payload through the pipeline n times. Each pass ends before the next begins.
func (f *flow) passes(ctx context.Context, b *batchRun, n int) (time.Duration, error) {
	f.recent.forget()
	start := time.Now()
	for range n {
		if _, err := b.run(ctx, b.held()); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// compare checks the result of the whole payload against the reference, and the results of the pieces against the
// whole one, byte by byte.
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
