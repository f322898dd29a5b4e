package inflight

import (
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
)

// Costs computes how much memory a delivery may take from the pull to its acknowledgement, in bytes. TestCostsCoverTheHeap
// compares it with the heap.
type Costs struct {
	result   int64          // maximum for an empty row's result, rounded up as the allocator does
	perByte  int64          // maximum by which each byte of a row makes its result larger
	results  unpack.Results // of frames
	refusals Refusals
}

const (
	// deliveryCost is the number of bytes that each delivery takes in addition to its message and its result: the client's
	// message, the entries in batches, settle buffers and the ledger, the result's message with its own headers, and the client's
	// state of a publish until it is confirmed. The measured value is 2.1 KiB.
	deliveryCost = 2560

	// headerCost is the number of bytes that a header takes in addition to its own: its entries in the maps of the input and of
	// the result, and its values.
	headerCost = 192

	// receiptCost is the number of bytes that it takes to acknowledge an input whose payload is no longer held.
	receiptCost = 512
)

// NewCosts returns the costs of deliveries whose results have that format.
func NewCosts(format operator.Format, operators []operator.Operator) Costs {
	none := format.Most(operators, 0)
	most := int64(format.Most(operators, operator.StringBytes(operators, 1, 0)))
	perByte := int64(format.Most(operators, operator.StringBytes(operators, 0, 1)) - none)
	return Costs{
		result: most + most/16, perByte: perByte + (perByte+15)/16, results: unpack.Results{Operators: operators, Format: format}, refusals: NewRefusals(operators),
	}
}

// Compressed returns the costs if results are compressed, which takes the result of a frame twice.
func (c Costs) Compressed() Costs {
	c.results.Compressed = true
	return c
}

// of returns the cost of a delivery that takes that many rows of a batch.
func (c Costs) of(d *Delivery, rows int) int64 {
	bytes := int64(len(d.Msg.Data()) + d.HeaderBytes + len(d.Msg.Reply()) + 2*len(d.Msg.Subject()))
	return deliveryCost + bytes + bytes/8 + c.perByte*int64(len(d.Msg.Data())) + headersCost(d.Msg.Headers()) + int64(rows)*c.result // the allocator rounds up by an eighth at most
}

// headersCost returns the memory of the parsed headers: the client copies each key and value out of the received bytes.
func headersCost(h nats.Header) (cost int64) {
	for key, values := range h {
		cost += headerCost + int64(len(key))
		for _, v := range values {
			cost += 32 + int64(len(v))
		}
	}
	return cost
}

// perPayload returns the cost of an empty payload without headers. It is the minimum, and nearly the whole cost of a small
// payload.
func (c Costs) perPayload() int64 { return deliveryCost + c.result }
