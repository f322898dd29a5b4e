package inflight

import "context"

// holdings is the memory that deliveries hold, from the pull to the acknowledgement.
type holdings struct {
	costs    Costs  // of each delivery
	memory   budget // memory of all deliveries in flight
	payloads budget // payload bytes of submitted batches, so that few large batches are in flight
}

// Hold waits for memory for a delivery and takes it. It reports false if ctx ends first.
func (h *holdings) Hold(ctx context.Context, d *Delivery) bool {
	cost := h.costs.of(d, 1)
	if h.memory.take(ctx, cost) != nil {
		return false
	}
	d.Cost = cost
	return true
}

// Force takes the memory at once, even if that exceeds the limit.
func (h *holdings) Force(d *Delivery) {
	d.Cost = h.costs.of(d, 1)
	h.memory.force(d.Cost)
}

// HoldReceipt takes at once the memory for acknowledging a delivery whose payload is no longer held.
func (h *holdings) HoldReceipt() { h.memory.force(receiptCost) }

// ReleaseReceipts gives back what n calls of HoldReceipt took.
func (h *holdings) ReleaseReceipts(n int) { h.memory.give(receiptCost * int64(n)) }

// Release gives back the memory that a delivery holds. It may be called more than once.
func (h *holdings) Release(d *Delivery) {
	h.memory.give(d.Cost)
	d.Cost = 0
}

// releaseAll gives back the memory that a batch holds.
func (h *holdings) releaseAll(g *Batch) {
	sum := int64(0)
	for i := range g.Items {
		sum += g.Items[i].Cost
		g.Items[i].Cost = 0
	}
	h.memory.give(sum)
	h.payloads.give(g.bytes)
	g.bytes = 0
}

// Memory returns how much memory deliveries in flight take.
func (h *holdings) Memory() (m Memory) {
	m.Limit, m.Used, m.Waits = h.memory.read()
	return m
}

// SetLimit changes how much memory deliveries may take together. It is for tests, before the pool is used.
func (h *holdings) SetLimit(bytes int64) { h.memory.limit = bytes }

// SubmittedBytes is how many payload bytes are in submitted batches.
func (h *holdings) SubmittedBytes() int64 {
	_, used, _ := h.payloads.read()
	return used
}

// PerPayload is what an empty payload without headers takes.
func (h *holdings) PerPayload() int64 { return h.costs.perPayload() }
