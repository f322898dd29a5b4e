package inflight

import (
	"fmt"
	"sync"
	"time"

	"millrace/internal/streams"
)

// Batch is the deliveries of one batch, from its first payload until the last of them is settled. The server
// counts AckWait down for each meanwhile, so the group is where they are kept alive.
type Batch struct {
	ReturnTo chan *streams.Batch // where its batch comes back to; nil: to a settler. Fixed when it is made

	mu         sync.Mutex
	Items      []Delivery
	settled    []bool
	touched    time.Time // when the server last heard of them
	headers    int       // bytes of the items' headers
	cost       int64     // of the items, when they were added
	bytes      int64     // of headers and payloads, once the batch is submitted; see Worker.payloads
	kept       int64     // bytes of memory that it keeps for the next batch; see keep
	window     *Window   // that the batch counts in; nil for none
	publishing bool      // it counts there as one that the device is done with
	Bodies     bodies    // results

	// Of a tenure's groups, which are settled in order.
	Record     streams.Record
	Err        error         // why the batch has no results
	Completed  chan struct{} // closed when the two above and the bodies are there
	Finished   chan struct{} // closed when all is settled; nil if nobody waits for that
	OnLeave    func()        // called when the batch has left the device
	OnComplete func()        // called then too, with failed set; nil for nothing
}

// Pack appends a delivery to a batch in which there is room. Every payload fits an empty batch: larger ones are not admitted.
func (g *Batch) Pack(b *streams.Batch, d Delivery) {
	if !b.Append(d.Msg.Data()) {
		panic(fmt.Sprintf("ingest: payload of %d bytes does not fit a batch that it was measured for", len(d.Msg.Data())))
	}
	g.Add(d)
}

// Add takes a delivery over.
func (g *Batch) Add(d Delivery) {
	g.mu.Lock()
	if len(g.Items) == 0 {
		g.touched = d.Received
	}
	g.Items = append(g.Items, d)
	g.settled = append(g.settled, false)
	g.headers += d.HeaderBytes
	g.cost += d.Cost
	g.mu.Unlock()
}

// Settle marks a delivery as settled, or as another group's; from then on it is not kept alive here.
func (g *Batch) Settle(i int) {
	g.mu.Lock()
	g.settled[i] = true
	g.mu.Unlock()
}

// Reclaim takes back what went to another group and was not settled there.
func (g *Batch) Reclaim(items []int) {
	g.mu.Lock()
	for _, i := range items {
		g.settled[i] = false
	}
	g.mu.Unlock()
}

// enter counts the group's batch in p until the group is cleared.
func (g *Batch) enter(p *Window) {
	g.window = p
	p.Enter()
}

// StartPublish counts it as one that the device is done with.
func (g *Batch) StartPublish() {
	if g.window != nil {
		g.publishing = true
		g.window.StartPublish()
	}
}

// Clear makes the group ready for the next batch.
func (g *Batch) Clear() {
	if g.window != nil {
		g.window.Leave(g.publishing)
		g.window, g.publishing = nil, false
	}
	g.mu.Lock()
	clear(g.Items) // let go of the messages
	g.Items, g.settled, g.headers, g.cost = g.Items[:0], g.settled[:0], 0, 0
	g.Bodies.Clear()
	g.Err, g.Completed, g.Finished, g.OnLeave, g.OnComplete = nil, nil, nil, nil, nil
	g.mu.Unlock()
}

// keepAlive tells the server that the unsettled deliveries are still being worked on, if it has not heard of
// them for longer than every. It says how many it told of.
func (g *Batch) keepAlive(now time.Time, every time.Duration) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.Items) == 0 || now.Sub(g.touched) < every {
		return 0
	}
	g.touched = now
	told := 0
	for i := range g.Items {
		// A failure means the connection is gone: AckWait passes and the server delivers again.
		if !g.settled[i] && g.Items[i].Msg.InProgress() == nil {
			told++
		}
	}
	return told
}

// Headroom is what is left of ackWait for the group's deliveries.
func (g *Batch) Headroom(now time.Time, ackWait time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ackWait - now.Sub(g.touched)
}

// Result is the encoded result of the i-th payload.
func (g *Batch) Result(i int) []byte { return g.Bodies.at(i) }

// Report tells o that the batch has ended, if there is an observer. Otherwise it does and allocates nothing.
func (g *Batch) Report(o BatchObserver, r *streams.Record) {
	if o != nil {
		o.BatchEnded(r, g.Payloads)
	}
}

// Payloads yields the inputs of the group's batch.
func (g *Batch) Payloads(yield func(Payload) bool) {
	for i := range g.Items {
		d := &g.Items[i]
		if !yield(Payload{Stream: d.Stream, Sequence: d.Sequence, Header: d.Msg.Headers()}) {
			return
		}
	}
}

// Complete notes what came of a tenure's batch, which has left the device.
func (g *Batch) Complete(record streams.Record, err error) {
	g.Record, g.Err = record, err
	g.OnLeave()
	if g.OnComplete != nil {
		g.OnComplete()
	}
	close(g.Completed)
}

// Find is the index of the item with that stream sequence, -1 if there is none. Items of a partition are in order.
func (g *Batch) Find(sequence uint64) int {
	if g == nil {
		return -1
	}
	for i := len(g.Items) - 1; i >= 0 && g.Items[i].Sequence >= sequence; i-- {
		if g.Items[i].Sequence == sequence {
			return i
		}
	}
	return -1
}

// Unsettled are the items of a group that are not settled.
func (g *Batch) Unsettled() []int { return g.AppendUnsettled(nil) }

// AppendUnsettled appends the indices of the deliveries that are not settled.
func (g *Batch) AppendUnsettled(items []int) []int {
	for i := range g.Items {
		if !g.settled[i] {
			items = append(items, i)
		}
	}
	return items
}

// HandOver copies the i-th item for a new owner, which has what that holds of the budget from now on.
func (g *Batch) HandOver(i int) Delivery {
	d := g.Items[i]
	g.Items[i].Cost = 0
	return d
}

// IsSettled reports whether the i-th delivery is settled, or another batch's. Only the goroutine that settles them may call it.
func (g *Batch) IsSettled(i int) bool { return g.settled[i] }
