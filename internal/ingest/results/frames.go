package results

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

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
	if status := f.Table.Status; !f.Framed() && status(0).Failed() {
		return Reason(status(0).String()), &operator.RecordError{Operator: f.Table.Operator(0), Text: f.Table.Message(0)}
	}
	first := *d
	first.First = true // without HeaderDeliveries
	limit := e.size.maxBytes() - headerBytes(e.frameHeader(&first, 1)) - partSpace - e.extra
	compress, done := e.compressor()
	defer done()
	if !f.Framed() {
		return TooLarge, f.EncodeSingle(e.o.Format, compress)
	}
	for {
		var single *table.RecordTooLargeError
		if err := f.EncodeParts(e.o.Format, limit, compress); !errors.As(err, &single) || f.Table.Status(single.Record) != record.OK {
			return TooLarge, err
		}
		f.Mark(single.Record, record.TooLarge)
	}
}

// part returns the message with the n-th part of a frame's result, counted from 0.
func (e *encoder) part(d *inflight.Delivery, n int) nats.Msg {
	h := e.frameHeader(d, len(d.Frame.Parts[n].Body))
	if parts := d.Frame.Parts; len(parts) > 1 {
		cut := fmt.Sprintf("%08x", parts[n].Cut)
		h[HeaderPart] = []string{fmt.Sprintf("%d/%d", n+1, len(parts))}
		h[HeaderFirstRecord] = []string{strconv.Itoa(parts[n].From)}
		h[HeaderCut] = []string{cut}
		if n+1 < len(parts) {
			h[jetstream.MsgIDHeader] = []string{partID(d, n+1, cut)}
		}
	}
	return nats.Msg{Subject: topology.MapSubject(e.o.ResultPrefix, d.Subject), Header: h, Data: d.Frame.Parts[n].Body}
}

// frameHeader returns the headers of a frame's result. body is the size of the result's body in bytes.
func (e *encoder) frameHeader(d *inflight.Delivery, body int) nats.Header {
	h := ResultHeader(d, e.operators)
	if f := d.Frame; f.Framed() {
		h[HeaderRecords] = []string{strconv.Itoa(f.Records())}
	}
	e.content.describe(h, d.Frame.Framed(), body)
	return h
}
