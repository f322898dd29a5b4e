// Package inflight tracks each delivery of a worker from the pull to its acknowledgement.
//
// A Delivery is one delivery of an input message. Deliveries wait in a Queue, and a Packer packs those of many queues into batches of
// a pipeline. A Batch keeps its deliveries until all of them are settled. A Frame is a message of many records, which
// an Unpacker splits. A Pool bounds the number and memory of deliveries, and keeps them alive at the server. A
// Window decides when a partly filled batch is submitted.
//
// Both delivery modes use this package. Package results stores results, and the modes acknowledge inputs. Start reading
// at Delivery, then Batch, then Pool.
package inflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// Message contains the methods of a received message that Delivery uses. *pull.Message implements it.
type Message interface {
	Data() []byte
	Headers() nats.Header
	Subject() string
	Reply() string
	AckToken() pull.AckToken // for an acknowledgement after the payload is released

	Ack() error
	DoubleAck(ctx context.Context) error
	InProgress() error
	NakWithDelay(delay time.Duration) error
	TermWithReason(reason string) error
}

// Delivery is one delivery of an input message.
type Delivery struct {
	Msg              Message
	Stream           string
	Subject          string    // subject of the published message
	Sequence         uint64    // stream sequence
	ConsumerSequence uint64    // number of the delivery at the consumer
	NumDelivered     int       // 1 for the first
	Turn             uint64    // turn in which the message arrived; see pull.Message.Turn
	Level            int       // quarantine level; see quarantine.Levels
	HeaderBytes      int       // size of the headers in bytes
	Stored           time.Time // time when the stream stored the message
	Received         time.Time
	Share            *memory.Share // share of the memory; see Pool.Hold
	Cost             int64         // bytes of memory that the delivery holds
	Frame            *Frame        // the message's records; nil if the message is a single uncompressed record
	Parts            []string      // ids of the result's parts that an earlier lease has stored

	// Done reports whether the message has a result or a dead letter already, and is computed again only for the state of a stateful
	// operator. For such a message, only entries of the state's log are stored.
	Done bool

	First   bool      // whether the message was never delivered before
	Cleared time.Time // time before which no result of the input was stored; zero if unknown
}

// Incoming is a message that NewDelivery accepts. *pull.Message implements it.
type Incoming interface {
	Message

	HeaderBytes() int // bytes of the headers on the wire
	Turn() uint64     // see pull.Message
	Since() time.Time // a time before the message reached the process; zero if unknown
	Metadata() (*jetstream.MsgMetadata, error)
}

// NewDelivery returns a delivery of msg, received at now. It returns an error for a message that is not from JetStream.
func NewDelivery(msg Incoming, now time.Time) (Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Delivery{}, fmt.Errorf("message on %q has no JetStream metadata: %w", msg.Subject(), err)
	}
	d := Delivery{
		First: meta.NumDelivered == 1, HeaderBytes: msg.HeaderBytes(), Turn: msg.Turn(),
		Msg: msg, Stream: meta.Stream, Subject: msg.Subject(), Sequence: meta.Sequence.Stream, ConsumerSequence: meta.Sequence.Consumer, NumDelivered: int(meta.NumDelivered),
		Stored: meta.Timestamp, Received: now,
	}
	if d.First {
		d.Cleared = msg.Since()
	}
	return d, nil
}

// PartitionSubject removes the partition from a stored subject.
func PartitionSubject(stored string) string {
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// cost returns the bytes of memory that the delivery and its frame hold.
func (d *Delivery) cost() int64 {
	if d.Frame == nil {
		return d.Cost
	}
	return d.Cost + d.Frame.Memory.Bytes
}

// payload describes the message to observers.
func (d *Delivery) payload() Payload {
	return Payload{Stream: d.Stream, Sequence: d.Sequence, Header: d.Msg.Headers()}
}

// NakDelay returns the delay before the redelivery of a payload that could not be processed. It starts at one second
// and doubles with every delivery, up to MaxNakDelay. The consumer's BackOff does not apply to naks.
func (d *Delivery) NakDelay() time.Duration {
	return min(time.Second<<min(d.NumDelivered-1, 6), MaxNakDelay)
}

// MaxNakDelay is the longest NakDelay.
const MaxNakDelay = time.Minute

// LossDelay is the delay before the redelivery of a payload that was on a lost device. It gives the process time to
// end, so that its successor gets the payload.
const LossDelay = time.Second

// Frame is a message that is split into records. It exists from the message's arrival until its result is stored. Its
// records may be in several batches, and the last of these batches has the delivery in Items. Each batch writes the
// results of its records into Table.
type Frame struct {
	Unpacked
	Parts []table.Part // encoded results: one body, or several
	// StoredApart is the sequence of the whole message in the dead-letter stream, if dead letters of records refer to it.
	// Otherwise it is 0.
	StoredApart uint64

	operators []operator.Operator
	refusals  Refusals
	d         Delivery // the message, without the memory that it holds
	cuts      []int    // records that must begin a new batch, in order

	missing atomic.Int32 // number of batches whose results are missing, plus 1 until all records are packed
	over    atomic.Bool
	done    chan struct{} // closed when no result is missing, or err is set
	err     error
}

// Await waits until no result is missing. It returns an error if some results can't be computed, or if ctx ends first.
func (f *Frame) Await(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isUnused reports whether no batch uses the frame.
func (f *Frame) isUnused() bool { return isOver(f.done) && f.missing.Load() == 0 }

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Fail makes Await return err, because some results can't be computed. Only the first call has an effect. The caller of
// Await may then settle the frame.
func (f *Frame) Fail(err error) {
	if f.over.CompareAndSwap(false, true) {
		f.err = err
		close(f.done)
	}
}

// settled records that one batch has written its results, or that all records are packed. Once no result is missing,
// Await returns.
func (f *Frame) settled() {
	if f.missing.Add(-1) == 0 {
		f.Fail(nil)
	}
}

// Put copies the results of a run of records into Table. The records are the rows of a completed batch from row on. Put
// marks each record that an operator refused, and passes the refusal to refused, which may be nil. It ignores refusals
// of records that already have a status, because their rows are empty.
func (f *Frame) Put(completed *streams.Batch, row, first, records int, refused func(Refused)) {
	if f.refusals.CanRefuse() {
		for i := range records {
			found := f.refusals.Find(completed, row+i)
			if found.Reason == "" || f.Table.Status(first+i) != record.OK {
				continue
			}
			f.Table.Refuse(first+i, found.Op, found.Reason)
			if refused != nil {
				refused(found)
			}
		}
	}
	for op, o := range f.operators {
		stride := operator.KernelOf(o).Stride()
		results := completed.Results(op)
		f.Table.Put(op, first, results[row*stride:][:records*stride])
		f.Table.PutStrings(op, first, records, results, completed.Offsets(), row)
	}
}

// payload returns record i as the device receives it. A record that can't be computed is empty.
func (f *Frame) payload(i int) []byte {
	if f.Records() == 0 || f.Table.Status(i) != record.OK {
		return nil
	}
	return f.Record(i)
}

// Blame records the operator that failed on record i, if err names one.
func (f *Frame) Blame(i int, err error) {
	if name := operator.ToBlame(err); name != "" {
		f.Table.Blame(i, name)
	}
}

// EncodeParts encodes the results in t into bodies of at most limit bytes, and compresses each body with compress. t is Table or a
// selection of it. compress may be nil. See table.Table.Parts for errors.
func (f *Frame) EncodeParts(t *table.Table, format operator.Format, limit int, compress func(dst, src []byte) []byte) (err error) {
	f.Encoded, f.Parts, err = t.Parts(f.Encoded[:0], format, limit, compress)
	return err
}

// EncodeSingle encodes the result in t of a message that is one record. A selection without the record has an empty body.
func (f *Frame) EncodeSingle(t *table.Table, format operator.Format, compress func(dst, src []byte) []byte) error {
	f.Encoded = f.Encoded[:0]
	if t.Records() > 0 {
		f.Encoded = t.AppendSingle(f.Encoded, format)
	}
	body := f.Encoded
	if compress != nil && len(body) > 0 {
		body = compress(nil, f.Encoded)
	}
	f.Parts = append(f.Parts[:0], table.Part{To: t.Records(), Body: body})
	return nil
}

// ResultBytes returns the number of bytes of the encoded parts.
func (f *Frame) ResultBytes() (bytes int) {
	for _, part := range f.Parts {
		bytes += len(part.Body)
	}
	return bytes
}

// Stats returns the statistics of the frame. The result must be encoded.
func (f *Frame) Stats() FrameStats {
	return FrameStats{
		Framed: f.Framed(), Records: f.Table.Count(), Parts: len(f.Parts), Compressed: f.Compressed, Decompressed: f.Decompressed,
		Decompressing: f.Decompressing, Splitting: f.Splitting, LeftOut: slices.Clone(f.LeftOut),
	}
}

// pack appends records to b until b is full, up to the next cut or the end of the frame. It returns the number of
// appended rows. A frame without records has one empty row, because the device accepts no batch without rows.
func (f *Frame) pack(b *streams.Batch) (rows int) {
	if f.Records() == 0 {
		if !b.Append(nil) {
			return 0
		}
		return 1
	}
	if len(f.cuts) > 0 && f.cuts[0] == f.Cursor.Next() {
		f.cuts = f.cuts[1:]
	}
	last := f.Records()
	if len(f.cuts) > 0 {
		last = f.cuts[0]
	}
	return f.Cursor.Fill(b, last-f.Cursor.Next())
}

// Cut makes each record in at begin a new batch. at contains increasing indices. Call Cut before any record is packed.
func (f *Frame) Cut(at []int) { f.cuts = at }

// Refusals finds rows for which an operator has no result. Either the operator refused the record, or it returned an
// undeclared status or an overlong byte string.
type Refusals struct{ refusers []refuser }

// refuser is an operator that can refuse a record.
type refuser struct {
	index   int // in the list of operators
	by      operator.Refuser
	faulty  operator.Faulty // the same operator if user code writes its results; otherwise nil
	strings bool            // whether user code writes byte strings into its results
}

// Refused describes an operator's missing result for a row.
type Refused struct {
	Op     int    // index in the list of operators
	Reason string // empty if there is a result
	Fault  string // the operator's fault; empty if the reason is declared
}

// NewRefusals returns the Refusals of the given operators.
func NewRefusals(operators []operator.Operator) (r Refusals) {
	for i, op := range operators {
		by, ok := op.(operator.Refuser)
		if !ok {
			continue
		}
		one := refuser{index: i, by: by}
		one.faulty, ok = op.(operator.Faulty)
		_, variable := op.(operator.Variable)
		one.strings = ok && variable
		r.refusers = append(r.refusers, one)
	}
	return r
}

// CanRefuse reports whether one of the operators can refuse a record.
func (r Refusals) CanRefuse() bool { return len(r.refusers) > 0 }

// Find returns the first operator that has no result for a row of a completed batch, and the reason. It returns the
// zero Refused if all operators have a result. Only then may the caller read byte strings of the row.
func (r Refusals) Find(completed *streams.Batch, row int) Refused {
	for i := range r.refusers {
		o := &r.refusers[i]
		results := completed.Results(o.index)
		reason := o.by.Refusal(results, completed.Rows(), row)
		if reason == "" && o.strings {
			reason = o.faulty.Overlong(results, completed.Offsets(), row)
		}
		if reason == "" {
			continue
		}
		found := Refused{Op: o.index, Reason: reason}
		if o.faulty != nil {
			found.Fault = o.faulty.Fault(reason)
		}
		return found
	}
	return Refused{}
}
