package bench

import (
	"bytes"
	"context"
	"errors"
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
	same := &sameResults{}
	var cases []*Case
	for _, n := range chunkedPieces {
		cases = append(cases, t.chunked(m, payload, n, same))
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

// chunked returns a case that runs one payload in n pieces, each on its own lane. The payload counts as one batch.
func (t *target) chunked(m mix, payload, n int, same *sameResults) *Case {
	load := newWords(m, payload/n)
	load.pieces = true
	c, f := t.flow("chunked", load, t.inLanes(n))
	c.Row.BatchBytes = payload
	c.Measure = func(ctx context.Context, c *Case, seed uint64) error {
		return f.withPipeline(func(p *streams.Pipeline) error {
			held, err := fill(ctx, p, load, seed)
			if err != nil {
				return err
			}
			b := f.batchRun(p, held)
			err = c.timed(t.Turn(), 2, func(n int) (time.Duration, error) { return b.passes(ctx, n) })
			if err != nil {
				return err
			}
			c.Add(figurePieces, "", float64(n))
			if len(c.seconds) == t.Rounds {
				t.trace(c, p, f.recent.last(tracedBatches))
			}
			return errors.Join(verify(held, load, seed), same.check(fmt.Sprintf("the payload in %d pieces", n), seed, held))
		})
	}
	return c
}

// passes sends all held batches through the pipeline n times. Each pass ends before the next begins.
func (b *batchRun) passes(ctx context.Context, n int) (time.Duration, error) {
	b.recent.forget()
	start := time.Now()
	for range n {
		if _, err := b.run(ctx, b.held()); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// sameResults checks that several cases have the same results in a round. The reference checks only a sample of them.
type sameResults struct {
	first   string // the case that is measured first in the round
	seed    uint64 // seed of the round
	results []byte // results of first
}

// check compares the results of all batches with those of the first case, byte by byte.
func (s *sameResults) check(name string, seed uint64, batches []*streams.Batch) error {
	var results []byte
	for _, b := range batches {
		results = append(results, b.Results(0)...)
	}
	if s.results == nil || s.seed != seed {
		s.first, s.seed, s.results = name, seed, results
	}
	if !bytes.Equal(results, s.results) {
		return errWrong{fmt.Errorf("WRONG RESULT: %s differs from %s over the same bytes", name, s.first)}
	}
	return nil
}
