package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/store"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// encoder encodes results into messages.
type encoder struct {
	o         Options
	extra     int     // result of commitBytes
	operators string  // value of HeaderOperators
	stateful  int     // index of the stateful operator; -1 without one
	content   content // headers that describe the bodies of results
	refusals  inflight.Refusals
	canRefuse bool                   // whether an operator can refuse a record
	refused   func(inflight.Refused) // sawRefusal; stored, because a method value allocates
	size      messageSize

	compressors sync.Pool // contains *compression.Compressor
}

func newEncoder(o Options, s *Server) *encoder {
	e := &encoder{
		o: o, extra: commitBytes(o.Topology), operators: OperatorNames(o.Operators), stateful: stateful(o.Operators), content: newContent(o.Format, o.Encoding),
		refusals: inflight.NewRefusals(o.Operators), size: messageSize{server: s, log: o.Log},
	}
	e.refused, e.canRefuse = e.sawRefusal, e.refusals.CanRefuse()
	return e
}

// OperatorNames returns the value of HeaderOperators for operators.
func OperatorNames(operators []operator.Operator) string {
	names := make([]string, len(operators))
	for i, op := range operators {
		names[i] = op.String()
	}
	return strings.Join(names, ",")
}

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

// Encode writes the results of completed into b, and into the tables of its frames. The buffers of completed may be released
// afterwards.
func (e *encoder) Encode(b *inflight.Batch, completed *streams.Batch, s *Buffers) {
	b.Bodies.Reserve(e.maxBodies(b))
	compress, done := e.compressor()
	defer done()
	for _, span := range b.Spans {
		if span.Frame != nil {
			if span.Frame.Records() > 0 {
				span.Frame.Put(completed, span.Row, span.First, span.Rows, e.refused)
			}
			if span.Item >= 0 {
				b.Bodies.Add(b.Bodies.Data) // the frame has the body
			}
			continue
		}
		for i := range span.Rows {
			e.encodeRow(b, span.Item+i, completed, span.Row+i, s, compress)
		}
	}
	b.Collected()
}

// maxBodies returns the maximum total size of the results of b's messages that aren't frames, in bytes.
func (e *encoder) maxBodies(b *inflight.Batch) int {
	f, ops, n := e.o.Format, e.o.Operators, len(b.Items)
	limit, strings := n*f.MaxBytes(ops, 0), operator.StringBytes(ops, n, b.PayloadBytes())
	if strings > 0 {
		limit += f.MaxBytes(ops, strings) - f.MaxBytes(ops, 0)
	}
	return limit
}

// encodeRow encodes the result of the i-th delivery, which is one record, from the given row of completed. It compresses the
// result unless compress is nil. A delivery that an operator refused has no result.
func (e *encoder) encodeRow(b *inflight.Batch, i int, completed *streams.Batch, row int, s *Buffers, compress func(dst, src []byte) []byte) {
	if e.canRefuse {
		if found := e.refusals.Find(completed, row); found.Reason != "" {
			e.sawRefusal(found)
			name := e.o.Operators[found.Op].Name()
			b.Refuse(i, &operator.RecordError{Operator: name, Text: operator.RefusalText(name, found.Reason)})
			b.Bodies.Add(b.Bodies.Data)
			return
		}
	}
	s.records, s.strings = s.records[:0], s.strings[:0]
	for op, o := range e.o.Operators {
		s.records = append(s.records, operator.Value(o, completed.Results(op), completed.Offsets(), row, &s.strings))
	}
	bytes := len(b.Items[i].Msg.Data())
	if compress == nil {
		b.Bodies.Add(e.o.Format.Append(b.Bodies.Data, e.o.Operators, bytes, s.records))
		return
	}
	s.body = e.o.Format.Append(s.body[:0], e.o.Operators, bytes, s.records)
	b.Bodies.Add(compress(b.Bodies.Data, s.body))
}

// sawRefusal notifies the observer if the refusal found is an operator's fault.
func (e *encoder) sawRefusal(found inflight.Refused) {
	if found.Fault != "" {
		e.o.Observer.OperatorFault(inflight.OperatorFault{Operator: e.o.Operators[found.Op].Name(), Fault: found.Fault, At: time.Now()})
	}
}

// compressor returns the function that compresses result bodies, or nil without compression. The caller must call done.
func (e *encoder) compressor() (compress func(dst, src []byte) []byte, done func()) {
	if e.o.Encoding == compression.None {
		return nil, func() {}
	}
	c, _ := e.compressors.Get().(*compression.Compressor)
	if c == nil {
		c = &compression.Compressor{}
	}
	return func(dst, src []byte) []byte { return c.Append(dst, e.o.Encoding, src) }, func() { e.compressors.Put(c) }
}

// selects reports whether results have only some of the records of a message. A failed record can't be annotated, or already has a
// dead letter with the record.
func (e *encoder) selects() bool { return e.o.Filter != nil || e.o.Format == operator.Annotated }

// ask finds the records of a frame on which the state of a stateful operator decides, and returns their number; see table.Table.Ask.
func (e *encoder) ask(f *inflight.Frame) int {
	if f == nil || f.Fault() != nil {
		return 0
	}
	f.LeftOut = f.LeftOut[:0]
	if e.o.Filter != nil {
		f.LeftOut = append(f.LeftOut, make([]int, e.o.Filter.Len()+1)...)
	}
	f.Asked = f.Table.Ask(e.o.Filter, f.Asked[:0], f.LeftOut)
	return len(f.Asked)
}

// choose returns the table of the records in the result of a frame. With a stateful operator, the state must have decided on the records
// that ask has found.
func (e *encoder) choose(f *inflight.Frame) *table.Table {
	if !e.selects() {
		return &f.Table
	}
	if e.stateful < 0 {
		e.ask(f)
	}
	f.Chosen = f.Table.Choose(e.o.Filter, f.Asked, f.Chosen[:0], f.LeftOut)
	return f.Table.Select(f.Chosen)
}

// shrink makes the results of records smaller, because each of these results alone exceeds a message. t is the result of choose, and
// changes with the records. shrink returns false if a result can't become smaller.
func (e *encoder) shrink(f *inflight.Frame, t **table.Table, records []int) bool {
	if !e.selects() {
		return !slices.ContainsFunc(records, func(i int) bool { return !f.Table.Shrink(i) })
	}
	for _, i := range records {
		f.Mark(i, record.TooLarge)
	}
	f.Chosen = slices.DeleteFunc(f.Chosen, func(chosen uint32) bool { return f.Table.Status(int(chosen)) == record.TooLarge })
	*t = f.Table.Select(f.Chosen)
	return true
}

// reason returns the reason for the dead letter of a message that can't be unpacked because of fault.
func reason(fault error) Reason {
	var f *frame.Error
	switch {
	case errors.As(fault, &f):
		return Reason(f.Reason)
	case errors.Is(fault, compression.ErrTooLarge):
		return TooLarge
	}
	return InvalidEncoding
}

// partSpace is the number of bytes reserved for the headers of a part, and for HeaderDeliveries. A redelivery reserves the same
// space, so that it has the same parts. Some parts may already be stored.
const partSpace = 160

// encodeFrame encodes the result of d's frame into parts that the server accepts. Each part names its cut, because workers may cut
// the same result differently (adr/0039). A record gets the status too_large if its result alone exceeds a message. If the frame has
// no result, encodeFrame returns the reason and the cause of its dead letter.
func (e *encoder) encodeFrame(d *inflight.Delivery) (why Reason, cause error) {
	f := d.Frame
	if f.Fault() != nil {
		return reason(f.Fault()), f.Fault()
	}
	t := e.choose(f)
	if status := f.Table.Status; !f.Framed() && status(0).Failed() {
		return Reason(status(0).String()), recordError(f, 0)
	}
	first := *d
	first.First = true // without HeaderDeliveries
	limit := e.size.maxBytes() - headerBytes(e.frameHeader(&first, 1)) - partSpace - e.extra
	compress, done := e.compressor()
	defer done()
	if !f.Framed() {
		return TooLarge, f.EncodeSingle(t, e.o.Format, compress)
	}
	for {
		var broken *frame.Error // error about rows of an Arrow stream that can't be copied
		var single *table.RecordTooLargeError
		if err := f.EncodeParts(t, e.o.Format, limit, compress); errors.As(err, &broken) {
			return Reason(broken.Reason), err
		} else if !errors.As(err, &single) || !e.shrink(f, &t, append(single.Others, single.Record)) {
			return TooLarge, err
		}
	}
}

// part returns the message with the n-th part of a frame's result, counted from 0.
func (e *encoder) part(d *inflight.Delivery, n int) nats.Msg {
	h := e.frameHeader(d, len(d.Frame.Parts[n].Body))
	if parts := d.Frame.Parts; len(parts) > 1 {
		cut := fmt.Sprintf("%08x", parts[n].Cut)
		h[HeaderPart] = []string{fmt.Sprintf("%d/%d", n+1, len(parts))}
		h[HeaderFirstRecord] = []string{strconv.Itoa(parts[n].First)}
		h[HeaderCut] = []string{cut}
		if n+1 < len(parts) {
			h[jetstream.MsgIDHeader] = []string{partID(d, n+1, cut)}
		}
	}
	return nats.Msg{Subject: store.MapSubject(e.o.ResultPrefix, d.Subject), Header: h, Data: d.Frame.Parts[n].Body}
}

// frameHeader returns the headers of a frame's result. body is the size of the result's body in bytes.
func (e *encoder) frameHeader(d *inflight.Delivery, body int) nats.Header {
	h := ResultHeader(d, e.operators)
	f, records := d.Frame, d.Frame.Records()
	if e.selects() {
		records = len(f.Chosen)
	}
	if e.o.Filter != nil {
		h[HeaderFiltered] = []string{strconv.Itoa(sum(f.LeftOut))}
	}
	if e.o.Format == operator.Annotated {
		h[HeaderAnnotation] = []string{e.o.AnnotateAs}
	}
	if f.Framed() || e.selects() {
		h[HeaderRecords] = []string{strconv.Itoa(records)}
	}
	e.content.describe(h, f.Framed() || records == 0, body) // an empty body is a frame without records, but no JSON text
	if e.o.Format == operator.Annotated && f.IsArrow() {
		h[headerContentType] = arrowStream
	}
	return h
}

// arrowStream is the Content-Type of the annotated rows of an Arrow stream.
var arrowStream = []string{table.ContentType(operator.Arrow, true)}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// reconnectPause is the minimum time between two reconnects for reading the server's max_payload.
const reconnectPause = time.Minute

// messageSize tracks the maximum size of messages, and updates the client's copy of the server's max_payload.
type messageSize struct {
	server *Server
	log    *slog.Logger
	stream atomic.Int64 // the result stream's max_msg_size; 0 or less means no limit or unknown

	learning    sync.Mutex
	reconnected time.Time // time of the last reconnect by learn
}

func (m *messageSize) saw(info *jetstream.StreamInfo) { m.stream.Store(int64(info.Config.MaxMsgSize)) }

// maxBytes returns the maximum size of a message with a result, in bytes including headers. If the result stream's limit is unknown,
// maxBytes returns the server's.
func (m *messageSize) maxBytes() int {
	limit := m.server.MaxPayload()
	if stream := m.stream.Load(); stream > 0 {
		limit = min(limit, stream)
	}
	return int(limit)
}

// learn reports whether the server might store the payload of d after a publish has failed with err. The server reports its
// max_payload only when a client connects. If the client refuses a message of a size that the server has delivered, the client's
// limit may be outdated. learn then reconnects, at most once per reconnectPause, waits for the connection, and compares the
// payload with the new limit.
func (m *messageSize) learn(ctx context.Context, d *inflight.Delivery, err error) bool {
	if !errors.Is(err, nats.ErrMaxPayload) {
		return false
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	bytes, known := int64(len(d.Msg.Data())), m.server.MaxPayload()
	if bytes <= known {
		return true // the limit has been raised since
	}
	if time.Since(m.reconnected) < reconnectPause {
		return false
	}
	m.log.Warn("the server delivers larger messages than it accepted when the worker connected; reconnecting to read its max_payload",
		"bytes", bytes, "known", known)
	m.reconnected = time.Now()
	return m.server.Reconnect(ctx) && bytes <= m.server.MaxPayload()
}

// reconnect makes all connections reconnect, and waits for the first. It returns false if ctx ends first.
func reconnect(ctx context.Context, conns natsconn.Connections, log *slog.Logger) bool {
	for _, nc := range conns {
		if err := nc.ForceReconnect(); err != nil {
			log.Warn("could not connect again", "error", err)
		}
	}
	return conns[:1].AwaitConnected(ctx)
}
