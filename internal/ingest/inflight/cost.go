package inflight

import (
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
)

// Costs computes the maximum memory of a delivery from the pull to its acknowledgement, in bytes. TestCostsCoverTheHeap
// compares the costs with the heap.
type Costs struct {
	result   int64          // maximum size of an empty row's result, rounded up as the allocator does
	perByte  int64          // maximum growth of a row's result per byte of the row
	results  unpack.Results // properties of frames' results
	refusals Refusals
}

const (
	// deliveryCost is the number of bytes of a delivery in addition to its message and its result. It covers the
	// client's message, and the entries in batches, settle buffers and the ledger. It also covers the result's message
	// with its headers, and the client's state of an unconfirmed publish. The measured value is 2.1 KiB.
	deliveryCost = 2560

	// headerCost is the number of bytes of a header in addition to its text. It covers the header's values and its
	// entries in the maps of the input and of the result.
	headerCost = 192

	// receiptCost is the number of bytes that are needed to acknowledge an input after its payload is released.
	receiptCost = 512
)

// NewCosts returns the costs of deliveries whose results are encoded in format.
func NewCosts(format operator.Format, operators []operator.Operator) Costs {
	none := format.MaxBytes(operators, 0)
	limit := int64(format.MaxBytes(operators, operator.StringBytes(operators, 1, 0)))
	perByte := int64(format.MaxBytes(operators, operator.StringBytes(operators, 0, 1)) - none)
	return Costs{
		result: limit + limit/16, perByte: perByte + (perByte+15)/16, results: unpack.Results{Operators: operators, Format: format}, refusals: NewRefusals(operators),
	}
}

// Compressed returns the costs for compressed results. The result of a frame is in memory twice while it is compressed.
func (c Costs) Compressed() Costs {
	c.results.Compressed = true
	return c
}

// of returns the cost of a delivery with the given number of rows.
func (c Costs) of(d *Delivery, rows int) int64 {
	bytes := int64(len(d.Msg.Data()) + d.HeaderBytes + len(d.Msg.Reply()) + 2*len(d.Msg.Subject()))
	// The allocator rounds sizes up by at most an eighth.
	return deliveryCost + bytes + bytes/8 + c.perByte*int64(len(d.Msg.Data())) + headersCost(d.Msg.Headers()) + int64(rows)*c.result
}

// headersCost returns the memory of the parsed headers. The client copies each key and value out of the received bytes.
func headersCost(h nats.Header) (cost int64) {
	for key, values := range h {
		cost += headerCost + int64(len(key))
		for _, v := range values {
			cost += 32 + int64(len(v))
		}
	}
	return cost
}

// perPayload returns the cost of an empty payload without headers, which is the minimum cost.
func (c Costs) perPayload() int64 { return deliveryCost + c.result }
