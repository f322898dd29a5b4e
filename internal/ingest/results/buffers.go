package results

import (
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
)

// Buffers is the memory for settling a batch. It is reused for the next one.
type Buffers struct {
	// Settling is how long the calls of the sink took for the batch that was settled last.
	Settling time.Duration

	records [][]byte // values of one payload, by operator
	strings []byte   // memory of the values with byte strings
	body    []byte   // its result before compression
	left    []int    // indices of deliveries that are not settled yet
	stale   []int    // of those, the deliveries to look up
	known   []int    // of those, the deliveries with a stored result
	results []nats.Msg
	msgs    []*nats.Msg          // results to publish, by position in left
	answers []publisher.Answer   // the server's answers to msgs
	stored  []*inflight.Delivery // argument for the sink
	partial partials             // what lookups found of inputs that are not done
	kept    int64                // bytes that the pool counts for these buffers
}

// Tidy releases the last batch's results and deliveries, and bounds the memory that s keeps.
func (s *Buffers) Tidy(p *inflight.Pool) {
	s.clear()
	size := inflight.SizeOf(s.records) + inflight.SizeOf(s.strings) + inflight.SizeOf(s.body) + inflight.SizeOf(s.left) + inflight.SizeOf(s.stale) + inflight.SizeOf(s.known) +
		inflight.SizeOf(s.results) + inflight.SizeOf(s.msgs) + inflight.SizeOf(s.answers) + inflight.SizeOf(s.stored)
	if !p.Retain(s.kept, size) {
		s.Free(p)
		return
	}
	s.kept = size
}

// Free releases all memory.
func (s *Buffers) Free(p *inflight.Pool) {
	p.Retain(s.kept, 0)
	*s = Buffers{}
}

func (s *Buffers) clear() {
	clear(s.records)
	clear(s.results)
	clear(s.msgs)
	clear(s.answers)
	clear(s.stored)
}

// reset prepares s for another batch.
func (s *Buffers) reset() { s.Settling, s.left, s.partial = 0, s.left[:0], nil }
