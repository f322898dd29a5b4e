package ingest

import (
	"context"

	"github.com/nats-io/nats.go"
)

// costs says how much memory a delivery may take from the pull to its acknowledgement, in bytes. TestCostsCoverTheHeap compares it with
// the heap.
type costs struct {
	result int64 // the most that one row's result takes, rounded up as the allocator does
}

const (
	// deliveryCost is what each delivery takes beside the bytes of its message and of its result: the client's message, the entries in
	// groups, desks and ledgers, the result's message with its own headers, and what the client keeps of a publish until it is
	// answered. 2.1 KiB were measured.
	deliveryCost = 2560

	// headerCost is what a header takes beside its bytes: its places in the maps of the input and of the result, and its values.
	headerCost = 192

	// receiptCost is what it takes to acknowledge an input whose payload is not held any more.
	receiptCost = 512
)

func newCosts(o *Options) costs {
	most := int64(o.Format.Most(o.Operators))
	return costs{result: most + most/16}
}

// of is the cost of a delivery that makes so many rows of a batch.
func (c costs) of(d *delivery, rows int) int64 {
	bytes := int64(len(d.msg.Data()) + d.headers + len(d.msg.Reply()) + 2*len(d.msg.Subject()))
	return deliveryCost + bytes + bytes/8 + headersCost(d.msg.Headers()) + int64(rows)*c.result // the allocator rounds up by an eighth at most
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
func (c costs) perPayload() int64 { return deliveryCost + c.result }

// hold takes a delivery's cost off the budget once it is there. It reports false when ctx ended before.
func (p *pool) hold(ctx context.Context, d *delivery) bool {
	cost := p.costs.of(d, 1)
	if p.budget.take(ctx, cost) != nil {
		return false
	}
	d.cost = cost
	return true
}

// force takes it at once.
func (p *pool) force(d *delivery) {
	d.cost = p.costs.of(d, 1)
	p.budget.force(d.cost)
}

// release gives back what a delivery holds of the budget. It may be called more than once.
func (p *pool) release(d *delivery) {
	p.budget.give(d.cost)
	d.cost = 0
}

// yield copies the i-th item for a new owner, which has what that holds of the budget from now on.
func (g *group) yield(i int) delivery {
	d := g.items[i]
	g.items[i].cost = 0
	return d
}

// releaseAll gives back what a group's items hold.
func (p *pool) releaseAll(g *group) {
	sum := int64(0)
	for i := range g.items {
		sum += g.items[i].cost
		g.items[i].cost = 0
	}
	p.budget.give(sum)
	p.payloads.give(g.bytes)
	g.bytes = 0
}
