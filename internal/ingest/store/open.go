package store

import (
	"context"
	"errors"
	"fmt"
)

// OpenChains takes over the chains of a partition. The first chain contains the results. The second one contains the dead
// letters, and is nil if letters is nil. In each chain, OpenChains stores a fence, which is a marker with the position of the
// last one. Afterwards the server refuses the batches of earlier owners. OpenChains waits while a stream is full or
// unavailable. It fails with ErrFenced if another worker takes over the partition at the same time.
//
// OpenChains reads the last markers of both chains before it stores the first fence. Otherwise two workers could each get one
// of the chains, and an input could get both a result and a dead letter.
func OpenChains(ctx context.Context, o ChainOptions, results, letters Markers) (*Chain, *Chain, error) {
	opening := opening{results: &Chain{ChainOptions: o, stream: results}}
	if letters != nil {
		o.Way = Atomic
		opening.letters = &Chain{ChainOptions: o, stream: letters}
	}
	for attempt := 1; ; attempt++ {
		failed, err := opening.take(ctx)
		if err == nil {
			return opening.results, opening.letters, nil
		}
		if errors.Is(err, ErrFenced) || !failed.mayRetry(ctx, attempt, err) {
			return nil, nil, fmt.Errorf("store a commit marker: %w", err)
		}
	}
}

// opening is the progress of one call of OpenChains.
type opening struct {
	results, letters *Chain
	fenced           bool // whether the fence of the results is stored
}

// take reads the last markers and stores the missing fences. On an error, it also returns the chain that failed.
func (o *opening) take(ctx context.Context) (failed *Chain, err error) {
	var letters, results StoredMarker
	if o.letters != nil {
		if letters, err = o.letters.stream.Last(ctx); err != nil {
			return o.letters, err
		}
	}
	if results, err = o.results.stream.Last(ctx); err != nil {
		return o.results, err
	}
	if o.fenced && results.Owner != o.results.Owner {
		return o.results, ErrFenced
	}
	if err := o.results.fence(ctx, results); err != nil {
		return o.results, err
	}
	o.fenced = true
	if o.letters == nil {
		return nil, nil
	}
	return o.letters, o.letters.fence(ctx, letters)
}

// fence stores a fence after the last marker, unless the last marker is the fence of an earlier attempt. It also
// prepares the leftovers of earlier owners.
func (c *Chain) fence(ctx context.Context, last StoredMarker) (err error) {
	if last.At == 0 || last.Owner != c.Owner {
		c.found, c.last = last, last.At
		c.at, c.letters, c.state, c.lookUp = c.Start, nil, nil, c.LookUp
		if last.of(c.Created) {
			c.at, c.letters, c.state, c.lookUp, c.since = last.Position, last.Letters, last.State, last.LookUp, last.begins()
			if c.Entry == nil {
				c.state = nil // without a stateful operator, the state misses the inputs from here on
			}
			if c.Loose {
				c.lookUp = max(c.lookUp, c.LookUp)
			}
		}
		way := Atomic
		if last.Fast {
			way = Fast // a fast batch of the last owner may be open
		}
		if last.At, err = c.stream.Write(ctx, way, c.last, nil, c.next(c.at, c.letters)); err != nil {
			return err
		}
	}
	c.last = last.At
	if c.since == 0 {
		return nil
	}
	c.beyond, err = c.stream.Begun(ctx, c.since, c.last)
	c.left = Leftovers{readings: readings{stream: c.stream, behind: c.since, before: c.last}, until: c.beyond}
	return err
}
