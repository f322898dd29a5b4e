package neardup

import "fmt"

// progress is the position of an index in the stream, with the data to undo the last batch. Indexes in any memory share it, because it
// doesn't include the tables.
type progress struct {
	parameters Parameters
	batch      int // maximum number of records in a batch
	state

	parts    [2]int // number of records of the last batch that are in the young generation, and in the next one
	undoable bool
	before   state // state before the last batch

	start  uint64 // number of the log's first generation
	broken error  // error after which the state is unusable; nil if there is none
}

// state is the position of an index in the stream.
type state struct {
	applied    uint64   // number of records, including those whose entries were trimmed
	generation uint64   // number of the young generation
	last       Position // position of the last record
}

// Applied returns the number of records that were applied or replayed, and the position of the last record.
func (c *progress) Applied() (records uint64, last Position) { return c.applied, c.last }

// end returns the number of records at which the young generation is full.
func (c *progress) end() uint64 { return (c.generation + 1) * uint64(c.parameters.Records) }

// check returns an error unless a batch with these positions and this number of keys may follow the last batch.
func (c *progress) check(positions []Position, keys int) error {
	if err := c.ready(); err != nil {
		return err
	}
	if len(positions) > c.batch {
		return fmt.Errorf("a batch of %d records: the index takes %d", len(positions), c.batch)
	}
	if keys != len(positions)*c.parameters.Bands {
		return fmt.Errorf("%d keys of %d records: pass %d per record", keys, len(positions), c.parameters.Bands)
	}
	last := c.last
	for _, p := range positions {
		if p.Sequence == 0 || p.Compare(last) <= 0 {
			return fmt.Errorf("position %d:%d does not follow %d:%d: apply each record once, in order", p.Sequence, p.Record, last.Sequence, last.Record)
		}
		last = p
	}
	return nil
}

// ready returns an error if the index is broken, or if the replayed log lacks records that the next verdicts need.
func (c *progress) ready() error {
	if c.broken != nil {
		return c.broken
	}
	if next := c.applied / uint64(c.parameters.Records); c.start > 0 && next <= c.start {
		return fmt.Errorf("the log begins with generation %d, and verdicts of generation %d need the one before it: keep two whole generations of the log", c.start, next)
	}
	return nil
}

// follow prepares for the records of a log entry, or returns an error if the entry isn't the next one. begins reports whether the
// entry begins a new generation because the young one is full.
func (c *progress) follow(h Header) (begins bool, err error) {
	records := uint64(h.Parameters.Records)
	switch applied := h.Generation*records + uint64(h.First); {
	case h.Parameters != c.parameters:
		return false, fmt.Errorf("the log has parameters %+v, and the index %+v: use the parameters of the log, or begin a new log", h.Parameters, c.parameters)
	case c.applied == 0 && h.First == 0:
		if h.Generation == 0 && h.Previous != (Position{}) {
			return false, fmt.Errorf("the first record of the log has a position before it")
		}
		c.applied, c.generation, c.start = applied, h.Generation, h.Generation
	case applied != c.applied || h.Previous != c.last:
		return false, fmt.Errorf("the entry follows record %d at %v, and the index has %d records up to %v: replay the log without gaps", applied, h.Previous, c.applied, c.last)
	}
	return c.applied == c.end(), nil
}
