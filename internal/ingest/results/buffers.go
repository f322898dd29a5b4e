package results

import (
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/memory"
)

// Buffers holds the memory for settling batches, one batch at a time.
type Buffers struct {
	// Settling is the time spent on settling the last batch's deliveries after the server's answers.
	Settling time.Duration

	records  [][]byte // values of one payload, indexed by operator
	strings  []byte   // memory for values that are byte strings
	body     []byte   // the payload's result before compression
	left     []int    // indices of the deliveries that are neither settled nor given up
	stale    []int    // indices in left whose results must be looked up
	known    []int    // indices in stale with a stored result
	results  []nats.Msg
	msgs     []*nats.Msg          // pointers into results, in the order of left
	ends     []int                // for each delivery of a write, the end of its messages in msgs
	answers  []store.Answer       // the answers to msgs
	outcomes []store.Answer       // one answer for each delivery of a write
	stored   []*inflight.Delivery // argument of Sink.Stored
	partial  partials             // ids of stored messages of unfinished inputs
	kept     int64                // bytes that the pool counts for these buffers
}

// Tidy releases the last batch's results and deliveries. It also frees the memory of s if p has no space for it.
func (s *Buffers) Tidy(p *inflight.Pool) {
	s.clear()
	size := memory.SizeOf(s.records) + memory.SizeOf(s.strings) + memory.SizeOf(s.body) + memory.SizeOf(s.left) + memory.SizeOf(s.stale) + memory.SizeOf(s.known) +
		memory.SizeOf(s.results) + memory.SizeOf(s.msgs) + memory.SizeOf(s.ends) + memory.SizeOf(s.answers) + memory.SizeOf(s.outcomes) + memory.SizeOf(s.stored)
	if !p.Keep(&s.kept, size) {
		*s = Buffers{}
	}
}

// Free releases all memory.
func (s *Buffers) Free(p *inflight.Pool) {
	p.Keep(&s.kept, 0)
	*s = Buffers{}
}

func (s *Buffers) clear() {
	clear(s.records)
	clear(s.results)
	clear(s.msgs)
	clear(s.answers)
	clear(s.outcomes)
	clear(s.stored)
}

func (s *Buffers) reset() { s.Settling, s.left, s.partial = 0, s.left[:0], nil }
