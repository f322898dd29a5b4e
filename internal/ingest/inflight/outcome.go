package inflight

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/operator"
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

	// Part is the index of the group in the batch. A batch with inputs of several leases has a Record for each lease. They differ in the
	// fields below.
	Part     int
	Parts    int // number of groups in the batch
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

// OperatorFault is a failure that an operator caused.
type OperatorFault struct {
	Operator string    // name of the operator
	Fault    string    // one of operator.Faults
	At       time.Time // time when a worker observed the fault
	Earlier  bool      // whether another process observed and noted the fault
}

// Faults returns all values of OperatorFault.Fault.
func Faults() []string { return operator.Faults() }

// FaultNote is the metadata key of a consumer's note about operator faults. A process writes the note after an operator
// has caused the loss of its device, because the process ends and loses its counters.
const FaultNote = "millrace-operator-faults"

// maxNoted is the maximum number of faults of one operator in a note, and maxInNote the maximum for all operators.
// Newer faults replace older ones.
const (
	maxNoted  = 3
	maxInNote = 32
)

// AddFault returns note with f added.
func AddFault(note string, f OperatorFault) string {
	var entries []string
	same := 0
	for _, other := range slices.Backward(append(ParseFaults(note), f)) {
		if other.Operator == f.Operator {
			if same++; same > maxNoted {
				continue
			}
		}
		if len(entries) < maxInNote {
			entries = append(entries, fmt.Sprintf("%s:%s:%d", other.Operator, other.Fault, other.At.UnixNano()))
		}
	}
	slices.Reverse(entries)
	return strings.Join(entries, " ")
}

// ParseFaults returns the faults of a note, the oldest first. It ignores invalid entries.
func ParseFaults(note string) (faults []OperatorFault) {
	for _, entry := range strings.Fields(note) {
		parts := strings.Split(entry, ":")
		if len(parts) != 3 {
			continue
		}
		if at, err := strconv.ParseInt(parts[2], 10, 64); err == nil {
			faults = append(faults, OperatorFault{Operator: parts[0], Fault: parts[1], At: time.Unix(0, at), Earlier: true})
		}
	}
	return faults
}

// FaultOf returns the operator fault that caused the loss of a pipeline's device. ok is false if the device isn't lost,
// or if no operator is known to be the cause.
func FaultOf(pipe *streams.Pipeline) (f OperatorFault, ok bool) {
	name, fault := operator.FaultOfLoss(pipe.Err())
	return OperatorFault{Operator: name, Fault: fault, At: pipe.LostAt()}, name != ""
}
