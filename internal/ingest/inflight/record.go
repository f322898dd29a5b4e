package inflight

import "millrace/internal/streams"

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

// Report passes the record to o, unless o is nil.
func (r *Record) Report(o RecordObserver) {
	if o != nil {
		o.BatchDone(r)
	}
}
