package lease

import (
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// collector receives the completed batches of a pipeline, in any order.
type collector struct {
	o       *Options
	pipe    *streams.Pipeline
	buffers *inflight.FreeList[*results.Buffers] // at least one item per goroutine
	// store settles a batch that no goroutine waits for, see inflight.Batch.Completed. It is nil if there are no such batches.
	store func(pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers)
}

// run receives batches until done is closed. Several goroutines may run it.
func (c *collector) run(done <-chan struct{}) {
	for {
		select {
		case b := <-c.pipe.Completed():
			s := c.buffers.Take()
			c.collect(b, s)
			s.Tidy(c.o.Pool)
			c.buffers.Put(s)
		case <-done:
			return
		}
	}
}

// collect encodes the results of a batch, releases the device buffers, and completes the batch.
func (c *collector) collect(b *streams.Batch, s *results.Buffers) {
	g := b.Owner.(*inflight.Batch)
	awaited := g.Completed != nil
	start := c.pipe.Now()
	record, err := *b.ReadRecord(), b.Err()
	if err == nil {
		c.o.Judge.CameRight(c.pipe, g)
		g.StartPublish()
		c.o.Results.Encode(g, b, s)
	}
	b.Release()
	g.Complete(record, err)
	if !awaited {
		g.Record.Publish.Start = start
		c.store(c.pipe, g, s)
	}
}
