package inflight

import (
	"github.com/nats-io/nats.go"

	"millrace/internal/operator"
)

// Costs says how much memory a delivery may take from the pull to its acknowledgement, in bytes. TestCostsCoverTheHeap compares it with
// the heap.
type Costs struct {
	result int64 // the most that one row's result takes, rounded up as the allocator does
}

const (
	// deliveryCost is how many bytes each delivery takes besides its message and its result: the client's message, the entries in
	// batches, settle buffers and the ledger, the result's message with its own headers, and what the client keeps of a publish until
	// the answer. 2.1 KiB were measured.
	deliveryCost = 2560

	// headerCost is how many bytes a header takes besides its own: its places in the maps of the input and of the result, and its values.
	headerCost = 192

	// receiptCost is how many bytes it takes to acknowledge an input whose payload is no longer held.
	receiptCost = 512
)

// NewCosts makes the costs of deliveries whose results have that format.
func NewCosts(format operator.Format, operators []operator.Operator) Costs {
	most := int64(format.Most(operators))
	return Costs{result: most + most/16}
}

// of is the cost of a delivery that makes so many rows of a batch.
func (c Costs) of(d *Delivery, rows int) int64 {
	bytes := int64(len(d.Msg.Data()) + d.HeaderBytes + len(d.Msg.Reply()) + 2*len(d.Msg.Subject()))
	return deliveryCost + bytes + bytes/8 + headersCost(d.Msg.Headers()) + int64(rows)*c.result // the allocator rounds up by an eighth at most
}

// headersCost is what the client's form of headers takes: it copies each key and value out of the bytes that came.
func headersCost(h nats.Header) (cost int64) {
	for key, values := range h {
		cost += headerCost + int64(len(key))
		for _, v := range values {
			cost += 32 + int64(len(v))
		}
	}
	return cost
}

// perPayload is the cost of an empty payload without headers: the least that any has, and nearly all that a small one has.
func (c Costs) perPayload() int64 { return deliveryCost + c.result }
