package ingest

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pace"
	"millrace/internal/ingest/pull"
	"millrace/internal/streams"
)

// delivery is one input message in hand.
type delivery struct {
	msg        jetstream.Msg
	stream     string
	subject    string    // as it was published
	sequence   uint64    // in the stream
	number     uint64    // of the delivery, at the consumer
	deliveries int       // 1 for the first
	level      int       // how suspect it is; see levels
	headers    int       // bytes of its headers
	pending    uint64    // messages behind it
	stored     time.Time // when the stream stored it
	received   time.Time
	cost       int64 // bytes that it holds of the budget; see costs

	first   bool      // nobody has had it before
	cleared time.Time // it is known that no result of it was stored before then; zero: nothing is known
}

// newDelivery reads where msg comes from. It fails for a message that is not from JetStream.
func newDelivery(msg jetstream.Msg, now time.Time) (delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return delivery{}, fmt.Errorf("message on %q has no JetStream metadata: %w", msg.Subject(), err)
	}
	headers := 0
	if m, ok := msg.(interface{ HeaderBytes() int }); ok {
		headers = m.HeaderBytes()
	}
	var since time.Time
	if m, ok := msg.(interface{ Since() time.Time }); ok && meta.NumDelivered == 1 {
		since = m.Since()
	}
	return delivery{
		first: meta.NumDelivered == 1, cleared: since, headers: headers,
		msg: msg, stream: meta.Stream, subject: msg.Subject(), sequence: meta.Sequence.Stream, number: meta.Sequence.Consumer, deliveries: int(meta.NumDelivered),
		pending: meta.NumPending, stored: meta.Timestamp, received: now,
	}, nil
}

// receipt is what is left of the message when only its acknowledgement is to be said: no payload, which the stream has and
// many of which may wait.
func (d *delivery) receipt() jetstream.Msg {
	if m, ok := d.msg.(interface{ Receipt() *pull.Message }); ok {
		return m.Receipt()
	}
	return d.msg
}

// nakDelay is how long a payload that could not be processed stays away: a second, doubled with every
// delivery, a minute at most. The consumer's BackOff does not apply to naks.
func (d *delivery) nakDelay() time.Duration {
	return min(time.Second<<min(d.deliveries-1, 6), time.Minute)
}

// lossDelay is how long a payload stays away that was on a device as it was lost: time for the process to end, so that
// its successor gets it.
const lossDelay = time.Second

// group is the deliveries of one batch, from its first payload until the last of them is settled. The server
// counts AckWait down for each meanwhile, so the group is where they are kept alive.
type group struct {
	back chan *streams.Batch // where its batch comes back to; nil: to a settler. Fixed when it is made

	mu      sync.Mutex
	items   []delivery
	settled []bool
	touched time.Time  // when the server last heard of them
	headers int        // bytes of the items' headers
	cost    int64      // of the items, when they were added
	bytes   int64      // of headers and payloads, once the batch is submitted; see Worker.payloads
	kept    int64      // bytes of memory that it keeps for the next batch; see keep
	pace    *pace.Pace // that the batch counts in; nil for none
	storing bool       // it counts there as one that the device is done with
	bodies  []byte     // encoded results, back to back
	ends    []int      // where each ends

	// Of a lease's groups, which are settled in order.
	record    streams.Record
	failed    error         // why the batch has no results
	completed chan struct{} // closed when the two above and the bodies are there
	over      chan struct{} // closed when all is settled; nil if nobody waits for that
	leave     func()        // called when the batch has left the device
	done      func()        // called then too, with failed set; nil for nothing
}

// add takes a delivery over.
func (g *group) add(d delivery) {
	g.mu.Lock()
	if len(g.items) == 0 {
		g.touched = d.received
	}
	g.items = append(g.items, d)
	g.settled = append(g.settled, false)
	g.headers += d.headers
	g.cost += d.cost
	g.mu.Unlock()
}

// settle marks a delivery as settled, or as another group's; from then on it is not kept alive here.
func (g *group) settle(i int) {
	g.mu.Lock()
	g.settled[i] = true
	g.mu.Unlock()
}

// reclaim takes back what went to another group and was not settled there.
func (g *group) reclaim(items []int) {
	g.mu.Lock()
	for _, i := range items {
		g.settled[i] = false
	}
	g.mu.Unlock()
}

// keep counts the group's batch in p until the group is cleared.
func (g *group) keep(p *pace.Pace) {
	g.pace = p
	p.Start()
}

// store counts it as one that the device is done with.
func (g *group) store() {
	if g.pace != nil {
		g.storing = true
		g.pace.Store()
	}
}

// clear makes the group ready for the next batch.
func (g *group) clear() {
	if g.pace != nil {
		g.pace.End(g.storing)
		g.pace, g.storing = nil, false
	}
	g.mu.Lock()
	clear(g.items) // let go of the messages
	g.items, g.settled, g.headers, g.cost = g.items[:0], g.settled[:0], 0, 0
	g.bodies, g.ends = g.bodies[:0], g.ends[:0]
	g.failed, g.completed, g.over, g.leave, g.done = nil, nil, nil, nil, nil
	g.mu.Unlock()
}

// keepAlive tells the server that the unsettled deliveries are still being worked on, if it has not heard of
// them for longer than every. It says how many it told of.
func (g *group) keepAlive(now time.Time, every time.Duration) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.items) == 0 || now.Sub(g.touched) < every {
		return 0
	}
	g.touched = now
	told := 0
	for i := range g.items {
		// A failure means the connection is gone: AckWait passes and the server delivers again.
		if !g.settled[i] && g.items[i].msg.InProgress() == nil {
			told++
		}
	}
	return told
}

// headroom is what is left of ackWait for the group's deliveries.
func (g *group) headroom(now time.Time, ackWait time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ackWait - now.Sub(g.touched)
}
