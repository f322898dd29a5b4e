package inflight

import (
	"iter"
	"time"

	"millrace/internal/record"
	"millrace/internal/streams"
)

// Outcome is the final state of an input message in a worker.
type Outcome uint8

// The outcomes. Metrics use the same names.
const (
	Published    Outcome = iota // the result is stored and the input is acknowledged
	DeadLettered                // the input is stored under the dead-letter subject and terminated
	Nacked                      // the input was given back to be redelivered
	// Duplicate is like Published, but the server reported that it already had the result. For a batch of results, the
	// server reports no duplicates.
	Duplicate
	NumOutcomes
)

func (o Outcome) String() string {
	return [...]string{"published", "deadlettered", "nacked", "duplicate"}[o]
}

// FrameStats describes a message that was split into records or decompressed, and whose result is stored.
type FrameStats struct {
	Framed  bool                 // whether the message is a frame; otherwise it is a single compressed record
	Records [record.Statuses]int // number of records with each status
	LeftOut []int                // number of records that each condition of the filter left out, and then of null records; empty without a filter
	Parts   int                  // number of messages of the result

	Compressed, Decompressed int // bytes of the body before and after decompression; 0 if the message was not compressed

	Decompressing, Splitting time.Duration // durations of decompressing the message and of splitting it into records
}

// DeadLetter is a dead letter that is stored.
type DeadLetter struct {
	Subject  string // of the input
	Sequence uint64 // of the input
	Record   int    // index of the record in its frame, or -1 if the whole message is given up
	Reason   string // value of the Millrace-Reason header
	Cause    error
}

// Payload is a received message with rows in a batch.
type Payload struct {
	Stream   string
	Sequence uint64
	Header   map[string][]string // must not be kept or changed; nil if there are no headers
}

// BatchObserver receives batches and their payloads. Calls come from several goroutines and must not block.
type BatchObserver interface {
	// BatchEnded is called after the device has finished a batch and every result that could be published is settled.
	// Implementations must not keep r or the payloads.
	BatchEnded(r *Record, payloads iter.Seq[Payload])
}

// Stage is one step in the processing of a batch, from its first payload to its last acknowledgement.
type Stage uint8

// The stages after the pipeline's stages. A Stage below Publish is the streams.Stage with the same number. Metrics use
// the same names.
const (
	Publish Stage = iota + Stage(streams.NumStages) // results are sent to the server and stored
	Settle                                          // inputs are acknowledged
	NumStages
)

func (s Stage) String() string {
	switch s {
	case Publish:
		return "publish"
	case Settle:
		return "settle"
	}
	return streams.Stage(s).String()
}

// Record describes a batch from its first payload to its last acknowledgement. It adds the worker's stages to
// streams.Record.
type Record struct {
	streams.Record // Payloads counts rows, which are messages of one record and records of frames

	Messages int // messages with rows in the batch
	Ended    int // messages that end in the batch; their results are published with the batch

	// Publish and Settle use the device's clock, like the other stages. A stage that did not happen is the zero Span.
	Publish, Settle streams.Span
}

// Spans returns the span of each stage, in order.
func (r *Record) Spans() (spans [NumStages]streams.Span) {
	copy(spans[:], r.Stages[:])
	spans[Publish], spans[Settle] = r.Publish, r.Settle
	return spans
}

// Extent returns the span from the start of the first stage to the end of the last, or the zero Span if no stage
// happened.
func (r *Record) Extent() (whole streams.Span) {
	for _, s := range r.Spans() {
		switch {
		case s == streams.Span{}:
		case whole == streams.Span{}:
			whole = s
		default:
			whole.Start, whole.End = min(whole.Start, s.Start), max(whole.End, s.End)
		}
	}
	return whole
}

// RecordObserver receives the record of each finished batch. Calls come from several goroutines. Implementations must
// not block or keep the record.
type RecordObserver interface {
	BatchDone(*Record)
}
