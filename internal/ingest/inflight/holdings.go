package inflight

import "context"

// holdings tracks the memory that deliveries hold, from the pull to the acknowledgement.
type holdings struct {
	costs     Costs  // costs per delivery
	memory    budget // memory of all deliveries in flight
	payloads  budget // payload bytes of submitted batches; bounds the number of large batches in flight
	overdraft overdraft
}

// Hold waits for the memory of a delivery and takes it. It returns false if ctx ends first.
func (h *holdings) Hold(ctx context.Context, d *Delivery) bool {
	cost := h.costs.of(d, 1)
	if h.memory.take(ctx, cost) != nil {
		return false
	}
	d.Cost = cost
	return true
}

// Force takes a delivery's memory at once, even if that exceeds the limit.
func (h *holdings) Force(d *Delivery) {
	d.Cost = h.costs.of(d, 1)
	h.memory.Force(d.Cost)
}

// HoldReceipt takes the memory for acknowledging an input after its payload is released. It doesn't wait.
func (h *holdings) HoldReceipt() { h.memory.Force(receiptCost) }

// ReleaseReceipts releases the memory of n calls of HoldReceipt.
func (h *holdings) ReleaseReceipts(n int) { h.memory.Give(receiptCost * int64(n)) }

// Release releases the memory that a delivery holds. It may be called more than once.
func (h *holdings) Release(d *Delivery) {
	h.memory.Give(d.Cost)
	d.Cost = 0
	if d.Frame != nil {
		h.drop(d.Frame)
		h.overdraft.announce()
	}
}

// releaseAll releases the memory of a batch's deliveries.
func (h *holdings) releaseAll(g *Batch) {
	sum := int64(0)
	for i := range g.Items {
		sum += g.Items[i].Cost
		g.Items[i].Cost = 0
		if f := g.Items[i].Frame; f != nil {
			h.drop(f)
		}
	}
	h.memory.Give(sum)
	h.payloads.Give(g.bytes)
	g.bytes = 0
	h.overdraft.announce()
}

// Memory returns the memory that deliveries in flight use, and its limit.
func (h *holdings) Memory() (m Memory) {
	m.Limit, m.Used, m.Waits = h.memory.read()
	return m
}

// SetLimit sets the memory limit for all deliveries, in bytes. Only tests use it, before they use the pool.
func (h *holdings) SetLimit(bytes int64) { h.memory.limit = bytes }

// SubmittedBytes returns the number of payload bytes in submitted batches.
func (h *holdings) SubmittedBytes() int64 {
	_, used, _ := h.payloads.read()
	return used
}

// PerPayload returns the memory of an empty payload without headers, in bytes.
func (h *holdings) PerPayload() int64 { return h.costs.perPayload() }
